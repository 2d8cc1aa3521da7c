import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'

const folder = fileURLToPath(new URL('../', import.meta.url))
const run = promisify(execFile)

/** What the comment at the end of an example says it prints. */
function promisedOutput(source: string): string {
  const comment = /\/\* Prints:\n((?: \*.*\n)+) \*\/\n$/.exec(source)?.[1]
  if (comment === undefined) throw new Error('an example ends with a comment that starts with "Prints:"')
  return comment.replace(/^ \* ?/gm, '')
}

/** The promised text as a pattern: `…` stands for anything within its line. */
function asPattern(promised: string): RegExp {
  const literal = (text: string): string => text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')
  return new RegExp(`^${promised.split('…').map(literal).join('.*')}$`)
}

describe('every example prints what its last comment says', () => {
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.ts'))) {
    test(file, async () => {
      const promised = promisedOutput(readFileSync(`${folder}${file}`, 'utf8'))
      const program = `${folder}dist/${file.replace(/\.ts$/, '.js')}`
      const { stdout } = await run(process.execPath, [program], { timeout: 25_000, killSignal: 'SIGKILL' })
      expect(stdout).toMatch(asPattern(promised))
    })
  }
})
