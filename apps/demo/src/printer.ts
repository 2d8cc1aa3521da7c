/* What the visitor reads: one line per thing that happened, and how long it took. */
import { performance } from 'node:perf_hooks'

export interface Printer {
  /** A step begins. */
  title(text: string): void
  /** Something happened. */
  say(text: string): void
  /** Progress of long work: overwritten by the next line on a terminal, kept apart by time elsewhere. */
  progress(text: string): void
}

/** Milliseconds since the process began to work. */
export function now(): number {
  return performance.now()
}

/** `1.2 s`, `34 ms`, `0.4 ms`. */
export function duration(ms: number): string {
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(1)} s`
  return ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`
}

/** 135,233 */
export function grouped(value: number): string {
  return value.toLocaleString('en-US')
}

/** Lines elsewhere than on a terminal come at most this often. */
const PROGRESS_INTERVAL_MS = 1_000

/** Prints to `out`; with JSON on standard output the story goes to standard error. */
export function createPrinter(out: NodeJS.WriteStream): Printer {
  const isTerminal = out.isTTY
  let isProgressShown = false
  let lastProgress = -Infinity
  const line = (text: string): void => {
    out.write(`${isProgressShown ? '\r\u001b[K' : ''}${text}\n`)
    isProgressShown = false
  }
  return {
    title: (text) => line(`\n${isTerminal ? `\u001b[1m${text}\u001b[0m` : text}`),
    say: (text) => line(`  ${text}`),
    progress: (text) => {
      if (isTerminal) {
        out.write(`\r\u001b[K  ${text}`)
        isProgressShown = true
      } else if (now() - lastProgress >= PROGRESS_INTERVAL_MS) {
        lastProgress = now()
        line(`  ${text}`)
      }
    },
  }
}
