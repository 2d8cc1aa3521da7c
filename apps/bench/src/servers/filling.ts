/** Rows for the space of a server, whichever it is. */
import { connect } from '@orbweaver/connection'
import { ROW_COUNT, SPACE_ID, wideRow } from '../fixture.js'

/** The rows that are read and written in most cases. */
export function fillWide(port: number): Promise<void> {
  return fill(port, ROW_COUNT, wideRow)
}

export async function fill(port: number, count: number, rowOf: (id: number) => unknown[]): Promise<void> {
  await using connection = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
  for (let from = 1; from <= count; from += BATCH) {
    const ids = Array.from({ length: Math.min(BATCH, count - from + 1) }, (_, i) => from + i)
    await Promise.all(ids.map((id) => connection.insert(SPACE_ID, rowOf(id), { timeout: Number.POSITIVE_INFINITY })))
  }
}

const BATCH = 5_000
