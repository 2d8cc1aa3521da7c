/* A turn of the scheduler as something to wait for, with a deadline. */
import type { Clock } from '@orbweaver/connection'
import { boxErrors } from '../errors.js'
import type { Scheduler, TurnKind, TurnOptions } from './scheduler.js'

/** Resolves when the turn has come: the caller ends it. @throws BoxError 78 when it did not come in time */
export function takeTurn(
  scheduler: Scheduler,
  clock: Clock,
  kind: TurnKind,
  timeoutMs: number,
  options: TurnOptions = {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    let isGranted = false
    let cancelTimer: () => void = () => undefined
    const giveUp = scheduler.start(
      kind,
      () => {
        isGranted = true
        cancelTimer()
        resolve()
      },
      options,
    )
    if (isGranted) return
    cancelTimer = clock.schedule(timeoutMs, () => {
      giveUp()
      reject(boxErrors.timeout())
    })
  })
}
