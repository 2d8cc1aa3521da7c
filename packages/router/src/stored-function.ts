declare const SIGNATURE: unique symbol

/** What a stored function takes and returns; it returns a list of values, as Lua does. */
// oxlint-disable-next-line typescript/no-explicit-any -- any parameters: those of a declared signature are kept as they are
export type Signature = (...args: any[]) => readonly unknown[]

/** Name of a stored function whose signature is known: calls check their arguments by it, and give its values. */
export type StoredFunction<S extends Signature> = string & { readonly [SIGNATURE]: S }

/** A name without a known signature. */
export type PlainName = string & { readonly [SIGNATURE]?: undefined }

/** Arguments of a function by its signature. */
export type ArgumentsOf<S extends Signature> = Readonly<Parameters<S>>

/** Values it returns: `vshard.storage.call` hands on three at the most. */
export type ValuesOf<S extends Signature> = ReturnType<S> extends infer R extends unknown[] ? R : never

/**
 * Declares a stored function once; calls through its name are checked from then on. At run time it is the name and nothing else.
 * @example
 * const getUser = storedFunction<(id: number) => [user?: User]>('user.get')
 * const [user] = await router.callro(router.bucketId(7), getUser, [7])
 */
export function storedFunction<S extends Signature>(name: string): StoredFunction<S> {
  return name as StoredFunction<S>
}
