// The closing line of a test run: "12 passed, 0 failed", with ", 3 skipped" behind it where something was skipped.
// It is written when the process ends, so that nothing (the coverage table, say) comes after it.

export default class CountReporter {
  #watching = false

  /** @param {import('vitest/node').Vitest} vitest */
  onInit(vitest) {
    this.#watching = vitest.config.watch
  }

  /**
   * @param {readonly import('vitest/node').TestModule[]} modules
   * @param {readonly unknown[]} unhandledErrors
   */
  onTestRunEnd(modules, unhandledErrors) {
    if (this.#watching) return
    const { passed, failed, skipped } = countTests(modules, unhandledErrors)
    process.once('exit', () => {
      const all = failed + (Reflect.get(globalThis, Symbol.for('orbweaver.build-failed')) === true ? 1 : 0)
      process.stdout.write(`${passed} passed, ${all} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`)
    })
  }
}

/**
 * A module that failed without a failed test (an import error, a broken hook) counts as one failure, and so does each
 * unhandled error: otherwise a run could say "0 failed" and exit with 1. A test that never got its turn, because the suite around it was
 * skipped, stays "pending": it counts as skipped, never as nothing.
 * @param {readonly import('vitest/node').TestModule[]} modules
 * @param {readonly unknown[]} unhandledErrors
 */
function countTests(modules, unhandledErrors) {
  const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 }
  for (const module of modules) {
    let failedHere = 0
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      counts[state === 'pending' ? 'skipped' : state]++
      if (state === 'failed') failedHere++
    }
    if (module.state() === 'failed' && failedHere === 0) counts.failed++
  }
  return counts
}
