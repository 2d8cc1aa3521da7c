import { fileURLToPath } from 'node:url'
import { configDefaults, defineConfig, type ViteUserConfig } from 'vitest/config'

const packagesDir: string = fileURLToPath(new URL('./packages/', import.meta.url))
const tests = (kind: string): string[] => [`{packages,apps}/*/test/**/*.${kind}.ts`, `examples/test/**/*.${kind}.ts`]

/**
 * One run for everything, so that there is one summary and one exit code. Packages see each other's sources through
 * these aliases and not through an export condition: a condition would leak into workers and child processes.
 */
const config: ViteUserConfig = defineConfig({
  resolve: {
    alias: [
      { find: /^@orbweaver\/([a-z]+)$/, replacement: `${packagesDir}$1/src/index.ts` },
      { find: /^@orbweaver\/([a-z]+)\/([a-z-]+)$/, replacement: `${packagesDir}$1/src/$2/index.ts` },
    ],
  },
  test: {
    reporters: ['default', './scripts/count-reporter.mjs'],
    silent: 'passed-only',
    maxWorkers: 2,
    coverage: { provider: 'v8', include: ['packages/*/src/**'] },
    projects: [
      {
        // Memory only: sources, no sockets, no child processes, nothing built.
        extends: true,
        test: {
          name: 'unit',
          include: tests('test'),
          exclude: [...configDefaults.exclude, ...tests('cluster.test')],
          sequence: { groupOrder: 0 },
          // Of what is computed, on a machine that does other things too: time itself is virtual here.
          testTimeout: 30_000,
        },
      },
      {
        // Real sockets, servers and child processes. Those start from dist, so this project builds first.
        extends: true,
        test: {
          name: 'cluster',
          include: tests('cluster.test'),
          globalSetup: ['./scripts/test-setup.mjs'],
          fileParallelism: false,
          sequence: { groupOrder: 1 },
          testTimeout: 30_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
})

export default config
