import { describe, expect, it } from 'vitest'
import { FairQueue, type FairMember } from '../src/fair-queue.js'

class Member implements FairMember {
  deficit = 0
  sent = 0
  sentBytes = 0
  readonly name: string
  readonly nextBytes: number
  readonly weight: number
  constructor(name: string, nextBytes: number, weight = 1) {
    this.name = name
    this.nextBytes = nextBytes
    this.weight = weight
  }
}

/** Everybody always has more to send. */
function serve(queue: FairQueue<Member>, turns: number): string[] {
  const order: string[] = []
  for (let i = 0; i < turns; i++) {
    const member = queue.next()!
    member.sent++
    member.sentBytes += member.nextBytes
    order.push(member.name)
    queue.push(member)
  }
  return order
}

describe('FairQueue', () => {
  it('gives each member one turn after the other', () => {
    const queue = new FairQueue<Member>(16_384)
    for (const name of ['a', 'b', 'c']) queue.push(new Member(name, 50))
    expect(serve(queue, 7).join('')).toBe('abcabca')
  })

  it('gives no more bytes to who sends large requests than to others of the same appetite', () => {
    const queue = new FairQueue<Member>(16_384)
    const [small, large] = [new Member('small', 4_096), new Member('large', 1_048_576)]
    queue.push(small)
    queue.push(large)
    serve(queue, 10_000)
    expect(large.sent).toBeGreaterThan(0)
    expect(large.sentBytes / small.sentBytes).toBeGreaterThan(0.2)
    expect(large.sentBytes / small.sentBytes).toBeLessThan(5)
    // Between two large ones the small one has had many turns.
    expect(small.sent / large.sent).toBeGreaterThan(50)
  })

  it('lets one that is alone send at once, whatever its size', () => {
    const queue = new FairQueue<Member>(16_384)
    const large = new Member('large', 67_108_864)
    queue.push(large)
    expect(queue.next()).toBe(large)
    expect(queue.next()).toBeUndefined()
  })

  it('gives a weight its share of bytes', () => {
    const queue = new FairQueue<Member>(1_000)
    const [one, three] = [new Member('one', 1_000), new Member('three', 1_000, 3)]
    queue.push(one)
    queue.push(three)
    serve(queue, 4_000)
    // One request a turn at the most: weight shows where a turn does not pay for a request.
    expect(three.sent / one.sent).toBeGreaterThanOrEqual(1)
    const large = new FairQueue<Member>(1_000)
    const [poor, rich] = [new Member('poor', 9_000), new Member('rich', 9_000, 3)]
    large.push(poor)
    large.push(rich)
    serve(large, 4_000)
    expect(rich.sent / poor.sent).toBeCloseTo(3, 1)
  })

  it('forgets members that are taken out, wherever they stand', () => {
    const queue = new FairQueue<Member>(16_384)
    const members = ['a', 'b', 'c', 'd'].map((name) => new Member(name, 10))
    for (const member of members) queue.push(member)
    queue.next()
    queue.remove(members[2]!)
    expect(queue.size).toBe(2)
    expect(queue.clear().map(({ name }) => name)).toEqual(['b', 'd'])
    expect(queue.next()).toBeUndefined()
  })
})
