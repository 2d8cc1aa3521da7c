/** Containers nested in one value that is written; Tarantool's Lua refuses more as well. */
export const MAX_WRITE_NESTING = 128

/**
 * Containers nested in one value that is read. Twice what Lua writes: rows stored by others and the arrays around a value of
 * full depth (DATA, the row) must still be readable, while a hostile body must not exhaust the stack.
 */
export const MAX_READ_NESTING = 256

/**
 * Extensions whose payload is MessagePack (tuples, errors) inside one another; deeper ones are kept as bytes. Each level that turns out
 * to be broken is copied as a whole, so depth multiplies the work.
 */
export const MAX_PAYLOAD_NESTING = 16

/** Default for the largest frame a writer makes: what a client of ours accepts by default, too. */
export const DEFAULT_MAX_FRAME_BYTES = 268_435_456
