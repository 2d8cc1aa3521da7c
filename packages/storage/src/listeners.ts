/* Those who want to hear of something. What they throw is theirs: it is told on `orbweaver:log` and stops nobody. */
import { log } from './diagnostics.js'

/** Calls a listener; its failure, at once or later, is a line of the log. */
export function tell<A extends readonly unknown[]>(
  storage: string,
  what: string,
  listener: (...args: A) => unknown,
  ...args: A
): void {
  const failed = (error: unknown): void => log('error', storage, 'listener failed', () => ({ listener: what, error }))
  try {
    const result = listener(...args)
    if (result instanceof Promise) result.catch(failed)
  } catch (error) {
    failed(error)
  }
}
