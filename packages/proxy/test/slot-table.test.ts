import { describe, expect, it } from 'vitest'
import { type SlotEntry, SlotTable } from '../src/slot-table.js'

const entry = (owner: string, bytes = 10): SlotEntry<string, unknown> => ({
  owner,
  note: undefined,
  syncHigh: 1,
  syncLow: 2,
  type: 3,
  flags: 0,
  bytes,
  sentAt: 5,
})

describe('SlotTable', () => {
  it('gives back what was stored, under the generation of the slot', () => {
    const table = new SlotTable<string>(256)
    const slot = table.take({ ...entry('a'), syncHigh: 0xffff_ffff, syncLow: 0xffff_fffe, type: 77, flags: 1 })
    expect(table.find(table.generation(slot), slot)).toBe(slot)
    expect([table.owner(slot), table.syncHigh(slot), table.syncLow(slot), table.type(slot), table.flags(slot)]).toEqual(
      ['a', 0xffff_ffff, 0xffff_fffe, 77, 1],
    )
  })

  it('finds nothing for a late reply, whether its slot is free or taken again', () => {
    const table = new SlotTable<string>(1)
    const slot = table.take(entry('a'))
    const generation = table.generation(slot)
    table.release(slot)
    expect(table.find(generation, slot)).toBe(-1)
    expect(table.take(entry('b'))).toBe(slot)
    expect(table.find(generation, slot)).toBe(-1)
    expect(table.find(table.generation(slot), slot)).toBe(slot)
    expect(table.find(0, 0xffff_ffff)).toBe(-1)
  })

  it('uses the slot again that has been free for longest', () => {
    const table = new SlotTable<string>(4)
    const slots = ['a', 'b', 'c', 'd'].map((owner) => table.take(entry(owner)))
    for (const slot of [2, 0, 3, 1]) table.release(slots[slot]!)
    expect(['e', 'f', 'g', 'h'].map((owner) => table.take(entry(owner)))).toEqual([2, 0, 3, 1])
  })

  it('grows up to its limit, keeping what is in it, and then says that it is full', () => {
    const table = new SlotTable<string>(1024)
    const slots = Array.from({ length: 1024 }, (_, i) => table.take(entry(`${i}`)))
    expect(new Set(slots).size).toBe(1024)
    expect(slots.every((slot, i) => table.owner(slot) === `${i}`)).toBe(true)
    expect([table.isFull, table.used, table.usedBytes]).toEqual([true, 1024, 10_240])
    expect(() => table.take(entry('x'))).toThrow(RangeError)
    table.release(slots[7]!)
    expect(table.take(entry('y'))).toBe(slots[7])
  })

  it('keeps orphans taken until their reply comes', () => {
    const table = new SlotTable<string>(256)
    const [a, b] = [table.take(entry('a')), table.take(entry('b'))]
    table.orphan('a')
    expect([table.owner(a), table.owner(b), table.used]).toEqual([undefined, 'b', 2])
    expect(table.find(table.generation(a), a)).toBe(a)
  })

  it('agrees with a plain map over random takes and releases', () => {
    const table = new SlotTable<string>(512)
    const model = new Map<number, { generation: number; owner: string }>()
    let state = 3
    const random = (): number => (state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff) / 0x7fff_ffff
    for (let step = 0; step < 4_000; step++) {
      if (random() < 0.52 && !table.isFull) {
        const owner = `${step}`
        const slot = table.take(entry(owner))
        expect(model.has(slot)).toBe(false)
        model.set(slot, { generation: table.generation(slot), owner })
      } else if (model.size > 0) {
        const [slot, { generation, owner }] = [...model][Math.floor(random() * model.size)]!
        expect(table.find(generation, slot)).toBe(slot)
        expect(table.owner(slot)).toBe(owner)
        table.release(slot)
        model.delete(slot)
      }
      expect(table.used).toBe(model.size)
    }
    expect(table.taken()).toEqual([...model.keys()].toSorted((a, b) => a - b))
  })
})
