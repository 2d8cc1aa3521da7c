/**
 * Lets an error thrown by a caller's callback surface as an uncaught exception, as it would from any event listener,
 * but after the connection has finished its own step: a faulty callback must not leave it half-way.
 */
export function surface(error: unknown): void {
  queueMicrotask(() => {
    throw error
  })
}
