/** The same suite for every engine that can run here. */
import { describe } from 'vitest'
import { embeddedEngine, tarantoolEngine } from '../src/index.js'
import type { EngineDriver } from '../src/index.js'

const ENGINES: readonly EngineDriver[] = [embeddedEngine, tarantoolEngine()]

/** One `describe` for each engine; one that cannot run here is skipped, with the reason in its title. */
export function describeEngines(title: string, suite: (engine: EngineDriver) => void): void {
  for (const engine of ENGINES) {
    const missing = engine.missing()
    const reason = missing === undefined ? '' : ` (skipped: ${missing})`
    describe.skipIf(missing !== undefined)(`${title}, engine ${engine.name}${reason}`, () => {
      suite(engine)
    })
  }
}
