/* Files of a data directory are named for the first record in them, or the last one a snapshot holds; so they sort by age. */

const DIGITS = 16
const PATTERN = /^(\d{16})\.(journal|snapshot)$/

/** Files that are still being made; what is left of them after a crash is removed. */
export const UNFINISHED = { segment: 'next.journal.tmp', snapshot: 'next.snapshot.tmp' } as const

export interface DataFile {
  readonly name: string
  readonly kind: 'journal' | 'snapshot'
  readonly sequence: number
}

export function dataFileName(kind: DataFile['kind'], sequence: number): string {
  return `${String(sequence).padStart(DIGITS, '0')}.${kind}`
}

/** Those of ours among the names, oldest first. */
export function dataFiles(names: readonly string[]): DataFile[] {
  return names
    .flatMap((name): DataFile[] => {
      const match = PATTERN.exec(name)
      return match === null
        ? []
        : [{ name, kind: match[2] === 'journal' ? 'journal' : 'snapshot', sequence: Number(match[1]) }]
    })
    .toSorted((a, b) => a.sequence - b.sequence)
}
