/* A file with the configuration, read again when it changes. The one place of this package that touches files. */
import { watch } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import type { ClusterConfig } from '@orbweaver/vshard'
import { readAnyConfig } from './any-config.js'
import type { TopologySource } from './topology-source.js'

export interface TopologyFileOptions {
  /** Makes the configuration of the parsed JSON. Default: understands all three shapes of `@orbweaver/vshard`. */
  readonly parse?: (content: unknown) => ClusterConfig
}

/**
 * The configuration in a JSON file: of this project, of vshard (`sharding`), or a topology file. It may be replaced or rewritten in
 * place; a half-written one is an alert, and the next change is read.
 */
export function topologyFile(path: string, { parse = readAnyConfig }: TopologyFileOptions = {}): TopologySource {
  return {
    read: async (signal) => parse(JSON.parse(await readFile(path, { encoding: 'utf8', signal })) as unknown),
    watch: (changed) => {
      // The folder, since a file that is replaced is another file.
      const watcher = watch(dirname(path), { persistent: false }, (_event, name) => {
        if (name === null || name === basename(path)) changed()
      })
      // What cannot be watched is still read from time to time.
      watcher.on('error', () => watcher.close())
      return () => watcher.close()
    },
  }
}
