import type { Clock } from './clock.js'
import { RequestAbortedError, RequestTimeoutError } from './errors.js'

/**
 * Waits for something that several callers share, but no longer than this caller wants to.
 * @param what - for messages, as the beginning of a sentence: `Preparing a statement`
 * @throws RequestTimeoutError, RequestAbortedError (`executed: 'no'`); what the promise rejects with
 */
export function waitFor<T>(
  shared: Promise<T>,
  what: string,
  clock: Clock,
  deadline: number,
  signal: AbortSignal | undefined,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const settle = (): void => {
      cancelTimer()
      signal?.removeEventListener('abort', onAbort)
    }
    const onAbort = (): void => {
      settle()
      reject(new RequestAbortedError(`${what} was aborted by its caller`, { executed: 'no', cause: signal?.reason }))
    }
    const cancelTimer = clock.schedule(deadline - clock.now(), () => {
      settle()
      reject(new RequestTimeoutError(`${what} timed out`, { executed: 'no' }))
    })
    if (signal?.aborted === true) {
      onAbort()
      return
    }
    signal?.addEventListener('abort', onAbort, { once: true })
    shared.then(
      (value) => {
        settle()
        resolve(value)
      },
      (error: unknown) => {
        settle()
        reject(error)
      },
    )
  })
}
