/* The proxy in front of embedded storages: over their sockets, and in the same process without one. */
import { type Connection, connect } from '@orbweaver/connection'
import { BoxError, hash2Of } from '@orbweaver/iproto'
import { createProxy, type Proxy, type TargetDefinition } from '@orbweaver/proxy'
import { createStorage, type Storage, values } from '@orbweaver/storage'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const HASH = Buffer.from(hash2Of('secret')).toString('base64')

for (const kind of ['socket', 'loopback'] as const) {
  describe(`a proxy in front of embedded storages by ${kind}`, () => {
    let storages: Storage[]
    let proxy: Proxy
    let address: { host: string; port: number }
    const clients: Connection[] = []

    beforeEach(async () => {
      storages = ['a', 'b'].map((name) => {
        const storage = createStorage({ name, users: { alice: { password: 'secret', rights: 'super' } } })
        storage.createSpace('kv', {
          format: [
            { name: 'key', type: 'unsigned' },
            { name: 'value', type: 'any' },
          ],
        })
        storage.define('echo', (_context, ...args) => values(...args))
        storage.define('who', (context) => context.session.user)
        storage.define('where', () => name)
        return storage
      })
      const targets: Record<string, TargetDefinition> = {}
      for (const storage of storages) {
        if (kind === 'loopback') targets[storage.name] = { embedded: storage }
        else {
          const at = await storage.listen({ host: '127.0.0.1', port: 0 })
          targets[storage.name] = { uri: at }
        }
      }
      proxy = createProxy({ targets, rw: 'a', credentials: { mode: 'static', users: { alice: HASH } } })
      const at = await proxy.listen({ host: '127.0.0.1', port: 0 })
      address = at as { host: string; port: number }
    })

    afterEach(async () => {
      for (const client of clients.splice(0)) client.destroy()
      await proxy.close({ graceMs: 0 })
      for (const storage of storages) await storage.close({ graceMs: 0 })
    })

    async function alice(): Promise<Connection> {
      const client = await connect({ uri: address, user: 'alice', password: 'secret' })
      clients.push(client)
      return client
    }

    it('gives each of many clients its own answers over one connection', async () => {
      const all = await Promise.all(Array.from({ length: 20 }, alice))
      const answers = await Promise.all(
        all.flatMap((client, i) => Array.from({ length: 50 }, (_, j) => client.call('echo', [i, j, `${i}-${j}`]))),
      )
      expect(answers).toEqual(
        Array.from({ length: 1000 }, (_, n) => [Math.floor(n / 50), n % 50, `${Math.floor(n / 50)}-${n % 50}`]),
      )
      expect(proxy.stats()).toMatchObject({ clients: 20, lanes: 1 })
      expect(await all[0]!.call('who')).toEqual(['alice'])
    })

    it('serves data by names, and errors with their codes', async () => {
      const client = await alice()
      await client.insert('kv', [1, { x: [1, 2n ** 63n] }])
      expect(await client.select('kv', [1])).toEqual([[1, { x: [1, 2n ** 63n] }]])
      await expect(client.insert('kv', [1, 0])).rejects.toMatchObject({ boxCode: 3 })
      await expect(client.call('nobody')).rejects.toBeInstanceOf(BoxError)
    })

    it('refuses a wrong password as the server does, and goes on as guest', async () => {
      const salted = connect({ uri: address, user: 'alice', password: 'wrong', reconnect: false })
      await expect(salted).rejects.toMatchObject({ code: 'ORB_AUTH' })
      const unknown = connect({ uri: address, user: 'mallory', password: 'x', reconnect: false })
      await expect(unknown).rejects.toMatchObject({ code: 'ORB_AUTH' })
      const guest = await connect({ uri: address })
      clients.push(guest)
      await expect(guest.call('who')).rejects.toMatchObject({ boxCode: 42 })
    })

    it('keeps transactions of clients apart', async () => {
      const [one, two] = [await alice(), await alice()]
      const [first, second] = [one.stream(), two.stream()]
      await first.begin()
      await second.begin()
      await first.insert('kv', [1, 'one'])
      await second.insert('kv', [2, 'two'])
      await first.rollback()
      await second.commit()
      expect(await one.select('kv', [])).toEqual([[2, 'two']])
    })

    it('tells every watcher, the late one at once', async () => {
      const [one, two] = [await alice(), await alice()]
      storages[0]!.broadcast('news', 1)
      const seen: unknown[][] = [[], []]
      one.watch('news', (value) => seen[0]!.push(value))
      await expect.poll(() => seen[0]).toEqual([1])
      two.watch('news', (value) => seen[1]!.push(value))
      await expect.poll(() => seen[1]).toEqual([1])
      storages[0]!.broadcast('news', 2)
      await expect
        .poll(() => seen)
        .toEqual([
          [1, 2],
          [1, 2],
        ])
    })

    it('changes the master under load without an error', async () => {
      const all = await Promise.all(Array.from({ length: 8 }, alice))
      const stop = new AbortController()
      let done = 0
      const run = async (client: Connection): Promise<void> => {
        while (!stop.signal.aborted) {
          await client.call('where')
          done++
        }
      }
      const runs = all.map(run)
      await expect.poll(() => done).toBeGreaterThan(100)
      const report = await proxy.failOverTo('b')
      expect(report).toMatchObject({ from: 'a', to: 'b', outcome: 'ok', drained: true })
      expect(await all[0]!.call('where')).toEqual(['b'])
      stop.abort()
      await Promise.all(runs)
    })
  })
}
