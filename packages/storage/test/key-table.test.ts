import { encodeValue } from '@orbweaver/iproto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { buildSpace } from '../src/engine/index-builder.js'
import { hashPart } from '../src/engine/key-hash.js'
import { KeyTable } from '../src/engine/key-table.js'
import { Space } from '../src/engine/space.js'

/** All numbers under a hash, as a table finds them. */
function refsOf(table: KeyTable, hash: number): number[] {
  const found: number[] = []
  for (let slot = table.search(hash, table.slotOf(hash)); slot >= 0; slot = table.search(hash, slot + 1))
    found.push(table.at(slot))
  return found.toSorted((a, b) => a - b)
}

describe('a table of keys', () => {
  it('finds what is there and nothing else, however hashes collide', () => {
    // Few hashes, and such as lie at both ends of the slots: runs are long and go over the end.
    const hash = fc.constantFrom(0, 1, 2, 15, 16, 31, 63, 0xffff_fffe, 0xffff_ffff)
    const step = fc.record({ hash, ref: fc.integer({ min: 0, max: 40 }), isRemoval: fc.boolean() })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const table = new KeyTable()
        const model = new Map<number, Set<number>>()
        const hashOfRef = new Map<number, number>()
        for (const { hash: wanted, ref, isRemoval } of steps) {
          const known = hashOfRef.get(ref)
          if (isRemoval && known !== undefined) {
            table.delete(known, ref)
            model.get(known)!.delete(ref)
            hashOfRef.delete(ref)
          } else if (!isRemoval && known === undefined) {
            table.add(wanted, ref)
            model.set(wanted, (model.get(wanted) ?? new Set()).add(ref))
            hashOfRef.set(ref, wanted)
          }
          for (const [at, refs] of model) expect(refsOf(table, at)).toEqual([...refs].toSorted((a, b) => a - b))
        }
      }),
      { numRuns: 300 },
    )
  })

  it('ignores the removal of what is not there', () => {
    const table = new KeyTable()
    table.add(7, 1)
    table.delete(7, 2)
    table.delete(8, 1)
    expect(refsOf(table, 7)).toEqual([1])
  })
})

describe('the hash of a key', () => {
  const hashOf = (bytes: Buffer): number => hashPart(bytes, 0, bytes.length)

  it.each([
    ['a small number', ['05', 'cc05', 'cd0005', 'ce00000005', 'cf0000000000000005']],
    ['a negative number', ['ff', 'd0ff', 'd1ffff', 'd2ffffffff', 'd3ffffffffffffffff']],
    ['a number of 32 bits', ['ce80000000', 'cf0000000080000000', 'd30000000080000000']],
    ['a number beyond 2^53', ['cf7fffffffffffffff', 'd37fffffffffffffff']],
    ['a text', ['a161', 'd90161', 'da000161', 'db0000000161']],
    ['bytes', ['c40161', 'c5000161', 'c60000000161']],
  ])('is the same for all forms of %s', (_what, forms) => {
    const hashes = forms.map((form) => hashOf(Buffer.from(form, 'hex')))
    expect(new Set(hashes).size).toBe(1)
  })

  it('differs for most keys that differ, also in a few bits or in order only', () => {
    const numbers = Array.from({ length: 50_000 }, (_, i) => hashOf(encodeValue(i * 4_096)) & 0xffff)
    expect(new Set(numbers).size).toBeGreaterThan(30_000)
    const texts = Array.from({ length: 50_000 }, (_, i) => hashOf(encodeValue(`key-${i}`)))
    expect(new Set(texts).size).toBeGreaterThan(49_900)
  })
})

describe('a space with a hashed key of several parts', () => {
  it('finds a tuple by any form of its key, and not by another order of the same parts', () => {
    const { definition, indexes } = buildSpace(512, 's', {
      format: [
        { name: 'a', type: 'unsigned' },
        { name: 'b', type: 'unsigned' },
      ],
      indexes: [{ name: 'pk', parts: ['a', 'b'] }],
    })
    const space = new Space(definition, indexes)
    space.put(encodeValue([1, 2]), 'insert')
    expect(space.primary.find(Buffer.from('92cc01cd0002', 'hex'))).toEqual(encodeValue([1, 2]))
    expect(space.primary.find(encodeValue([2, 1]))).toBeUndefined()
  })

  it('holds thousands of rows whose numbers are used again after removals', () => {
    const { definition, indexes } = buildSpace(512, 's', { format: [{ name: 'id', type: 'integer' }] })
    const space = new Space(definition, indexes)
    for (let round = 0; round < 3; round++) {
      for (let i = -2_000; i < 2_000; i++) space.put(encodeValue([i, `round ${round}`]), 'insert')
      for (let i = -2_000; i < 2_000; i++)
        expect(space.primary.find(encodeValue([i]))).toEqual(encodeValue([i, `round ${round}`]))
      for (let i = -2_000; i < 2_000; i++) expect(space.remove(encodeValue([i]))).toBeDefined()
      expect(space.size).toBe(0)
    }
  })
})
