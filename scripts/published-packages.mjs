// The packages that go to the registry: everything under packages/.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/**
 * @typedef {{ name: string, version: string, exports: Record<string, string | { types: string, default: string }> }} Manifest
 */

/** @returns {{ dir: string, folder: string, manifest: Manifest }[]} */
export function publishedPackages() {
  const parent = fileURLToPath(new URL('../packages/', import.meta.url))
  return readdirSync(parent)
    .toSorted()
    .map((name) => ({ dir: `${parent}${name}`, folder: `packages/${name}` }))
    .filter(({ dir }) => existsSync(`${dir}/package.json`))
    .map((found) => ({ ...found, manifest: JSON.parse(readFileSync(`${found.dir}/package.json`, 'utf8')) }))
}
