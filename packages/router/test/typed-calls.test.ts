/* What the compiler refuses and allows; nothing is sent. */
import { expect, expectTypeOf, it } from 'vitest'
import { storedFunction } from '../src/index.js'
import type { Router } from '../src/index.js'

interface User {
  readonly name: string
}
const getUser = storedFunction<(id: number, deep?: boolean) => [user?: User]>('user.get')
const count = storedFunction<() => [count: number]>('count')

/** What a proxy asks of whoever knows where buckets are. */
interface BucketLocator {
  locate(bucketId: number): string | undefined
  report(fact: { bucketId: number; from: string; destination: string | undefined }): void
}

/** Compiled, never run. */
async function calls(router: Router): Promise<void> {
  expectTypeOf(router).toExtend<BucketLocator>()
  expectTypeOf(await router.callro(1, getUser, [7])).toEqualTypeOf<[user?: User]>()
  expectTypeOf(await router.callrw(1, getUser, [7, true], { timeout: 5 })).toEqualTypeOf<[user?: User]>()
  expectTypeOf(await router.callbre(1, count)).toEqualTypeOf<[count: number]>()
  expectTypeOf(await router.callrw<[string]>(1, 'plain', ['anything'])).toEqualTypeOf<[string]>()
  expectTypeOf(await router.callrw(1, 'plain')).toEqualTypeOf<unknown[]>()
  // @ts-expect-error -- its argument is a number
  await router.callro(1, getUser, ['7'])
  // @ts-expect-error -- it has an argument
  await router.callro(1, getUser)
  // @ts-expect-error -- it has none
  await router.callbro(1, count, [1])
  // @ts-expect-error -- no such option
  await router.callrw(1, 'plain', [], { retries: 3 })
}

it('a stored function is its name and nothing else', () => {
  expect(getUser).toBe('user.get')
  expect(calls).toBeTypeOf('function')
})
