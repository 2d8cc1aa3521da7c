/**
 * Where the measured processes run. A wake-up across cores costs more than most requests and differs from run to run, so
 * server and clients share one core, with a priority above the rest of the machine where that is allowed.
 */
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

export interface Placement {
  /** Put before a command. */
  readonly prefix: readonly string[]
  /** For people. */
  readonly words: string
  /** Puts a process that runs already where the others are. */
  move(pid: number): void
}

export function choosePlacement(): Placement {
  const core = availableParallelism() > 1 ? '1' : '0'
  const taskset = ['taskset', '-c', core]
  const nice = ['nice', '-n', '-15']
  const isPinned = works(taskset)
  const isFavoured = works(nice)
  return {
    prefix: [...(isFavoured ? nice : []), ...(isPinned ? taskset : [])],
    move: (pid) => {
      if (isPinned) spawnSync('taskset', ['-a', '-p', '-c', core, String(pid)])
      if (isFavoured) spawnSync('renice', ['-n', '-15', '-p', String(pid)])
    },
    words: [
      isPinned
        ? `all on core ${core}`
        : 'not pinned to a core, since there is no taskset: ratios at 1 and 16 in flight may be far off',
      ...(isFavoured ? ['at raised priority'] : []),
    ].join(', '),
  }
}

/** nice warns and goes on when it may not raise the priority; only silence is success. */
function works([command = '', ...args]: readonly string[]): boolean {
  const { status, stderr } = spawnSync(command, [...args, 'true'], { encoding: 'utf8' })
  return status === 0 && stderr === ''
}
