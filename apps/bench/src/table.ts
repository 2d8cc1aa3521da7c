/** Plain text tables that are Markdown too: what is printed can be pasted into RESULTS.md. */

export interface Column {
  readonly title: string
  /** Default left. */
  readonly align?: 'left' | 'right'
}

/**
 * @param rows - a cell for each column
 * @throws RangeError for a row with another number of cells
 */
export function formatTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  for (const row of rows) {
    if (row.length !== columns.length)
      throw new RangeError(`A row has ${row.length} cells for ${columns.length} columns`)
  }
  const widths = columns.map(({ title }, i) => Math.max(title.length, 3, ...rows.map((row) => row[i]!.length)))
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, i) => (columns[i]!.align === 'right' ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!))).join(' | ')} |`
  const rule = columns.map(({ align }, i) =>
    align === 'right' ? `${'-'.repeat(widths[i]! - 1)}:` : '-'.repeat(widths[i]!),
  )
  return [line(columns.map(({ title }) => title)), line(rule), ...rows.map(line)].join('\n')
}

/** A number with three significant digits: `0.163`, `16.3`, `163`; thousands as `163k`, millions as `1.63M`. */
export function shortNumber(value: number): string {
  if (value >= 999_500) return `${digits(value / 1e6)}M`
  if (value >= 9_995) return `${digits(value / 1e3)}k`
  return digits(value)
}

function digits(value: number): string {
  if (value >= 99.95) return value.toFixed(0)
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2)
}
