/* The proxy in front of real servers: what only they can show. */
import { type Connection, connect } from '@orbweaver/connection'
import { BoxError, hash2Of } from '@orbweaver/iproto'
import { createProxy, type Proxy, type ProxyOptions } from '@orbweaver/proxy'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, tarantoolVersion, type TarantoolServer } from '../tarantool.js'

const SETUP = `
box.schema.user.create('alice', {password = 'secret', if_not_exists = true})
box.schema.user.grant('alice', 'super', nil, nil, {if_not_exists = true})
box.schema.user.create('bob', {password = 'b', if_not_exists = true})
box.schema.user.grant('bob', 'super', nil, nil, {if_not_exists = true})
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
local kv = box.schema.space.create('kv', {if_not_exists = true})
kv:format({{name = 'key', type = 'unsigned'}, {name = 'value', type = 'any'}})
kv:create_index('pk', {parts = {{1, 'unsigned'}}, if_not_exists = true})
local fiber = require('fiber')
function echo(...) return ... end
function sleep(seconds, value) fiber.sleep(seconds) return value end
function whoami() return box.session.user() end
function session() return box.session.id() end
function passwd(name, password) box.session.su('admin', box.schema.user.passwd, name, password) end
function big(bytes) return string.rep('x', bytes) end
function as_tuple() return box.tuple.new({1, 'one'}) end
`

const hashOf = (password: string): string => Buffer.from(hash2Of(password)).toString('base64')

describe.skipIf(missingTarantool !== undefined)(
  `the proxy in front of Tarantool ${tarantoolVersion}${missingTarantool === undefined ? '' : ` (skipped: ${missingTarantool})`}`,
  () => {
    let server: TarantoolServer
    let proxy: Proxy
    let uri: { host: string; port: number }
    const clients: Connection[] = []

    beforeAll(async () => {
      server = await startTarantool({ lua: SETUP })
      return () => server.stop()
    })

    afterEach(async () => {
      for (const client of clients.splice(0)) client.destroy()
      await proxy.close({ graceMs: 0 })
    })

    async function start(options: Partial<ProxyOptions> = {}): Promise<void> {
      proxy = createProxy({
        targets: { one: { uri: server.uri } },
        rw: 'one',
        credentials: { mode: 'static', users: { alice: hashOf('secret'), bob: hashOf('b') } },
        ...options,
      })
      const address = await proxy.listen({ host: '127.0.0.1', port: 0 })
      uri = address as { host: string; port: number }
    }

    async function login(user = 'alice', password = 'secret', tupleFormats = false): Promise<Connection> {
      const client = await connect({ uri, user, password, tupleFormats, reconnect: false })
      clients.push(client)
      return client
    }

    it('gives thousands of requests of many clients their own answers', async () => {
      await start()
      const all = await Promise.all(Array.from({ length: 50 }, () => login()))
      const answers = await Promise.all(
        all.flatMap((client, i) => Array.from({ length: 100 }, (_, j) => client.call('echo', [i, j]))),
      )
      expect(answers).toEqual(Array.from({ length: 5_000 }, (_, n) => [Math.floor(n / 100), n % 100]))
      expect(proxy.stats()).toMatchObject({ clients: 50, unexpectedReplies: 0, inFlight: 0 })
    })

    it('gives out-of-order answers as they come', async () => {
      await start()
      const client = await login()
      const order: string[] = []
      await Promise.all([
        client.call('sleep', [0.1, 'slow']).then(() => order.push('slow')),
        client.call('echo', ['fast']).then(() => order.push('fast')),
      ])
      expect(order).toEqual(['fast', 'slow'])
    })

    it('passes on large replies and large requests whole', async () => {
      await start()
      const client = await login()
      const [text] = await client.call<[string]>('big', [20_000_000])
      expect(text.length).toBe(20_000_000)
      const [back] = await client.call<[Buffer]>('echo', [Buffer.alloc(8_000_000, 5)])
      expect(back.length).toBe(8_000_000)
    })

    it('finds out that a password was changed, and that it was changed back', async () => {
      await start()
      const old = await login('bob', 'b')
      const admin = await login()
      await admin.call('passwd', ['bob', 'changed'])
      await expect(login('bob', 'b')).rejects.toMatchObject({ code: 'ORB_AUTH' })
      await expect(login('bob', 'changed')).rejects.toMatchObject({ code: 'ORB_AUTH' })
      expect(await old.call('whoami')).toEqual(['bob'])
      await admin.call('passwd', ['bob', 'b'])
      expect(await (await login('bob', 'b')).call('whoami')).toEqual(['bob'])
      expect(proxy.stats().staleLogins).toBe(1)
    })

    it('answers every request exactly once when the server is killed under load, and says which may have run', async () => {
      const victim = await startTarantool({ lua: SETUP })
      try {
        await start({ targets: { one: { uri: victim.uri } }, limits: { connectWaitMs: 10_000 } })
        const all = await Promise.all(Array.from({ length: 8 }, () => login()))
        const outcomes = { ok: 0, unknown: 0, no: 0 }
        let next = 0
        const isOver = new AbortController()
        const run = async (client: Connection): Promise<void> => {
          while (!isOver.signal.aborted) {
            await Promise.all(
              Array.from({ length: 32 }, async () => {
                try {
                  await client.insert('kv', [next++, 'x'])
                  outcomes.ok++
                } catch (error) {
                  if (!(error instanceof BoxError) || error.boxCode !== 77) throw error
                  outcomes[error.executed === 'unknown' ? 'unknown' : 'no']++
                }
              }),
            )
          }
        }
        const runs = all.map(run)
        await expect.poll(() => outcomes.ok).toBeGreaterThan(500)
        // One that is surely in flight, whatever moment the others are caught at.
        const slow = await login()
        const doomed = slow.call('sleep', [60]).catch((error: unknown) => error)
        await slow.ping()
        victim.signal('SIGKILL')
        await victim.exited()
        await victim.start()
        expect(await doomed).toMatchObject({ boxCode: 77, executed: 'unknown' })
        const before = outcomes.ok
        await expect.poll(() => outcomes.ok, { timeout: 10_000 }).toBeGreaterThan(before + 500)
        isOver.abort()
        await Promise.all(runs)
        expect(outcomes.ok + outcomes.unknown + outcomes.no).toBe(next)
        // Queued ones waited for the server to be back.
        expect(outcomes.no).toBe(0)
      } finally {
        await victim.stop()
      }
    })

    it('finds a stopped server by its silence, and goes on when it continues', async () => {
      const victim = await startTarantool({ lua: SETUP })
      try {
        await start({
          targets: { one: { uri: victim.uri } },
          limits: { pingIntervalMs: 100, pingTimeoutMs: 200 },
        })
        const client = await login()
        victim.signal('SIGSTOP')
        await expect(client.call('echo', [1])).rejects.toMatchObject({ boxCode: 77 })
        expect(proxy.stats().targets[0]!.state).not.toBe('up')
        victim.signal('SIGCONT')
        await expect.poll(() => proxy.stats().targets[0]!.state, { timeout: 10_000 }).toBe('up')
        expect(await client.call('echo', [2])).toEqual([2])
      } finally {
        victim.signal('SIGCONT')
        await victim.stop()
      }
    })

    it('keeps session settings of one client from others', async () => {
      await start()
      const [one, two] = [await login(), await login()]
      await one.execute('SET SESSION "sql_full_metadata" = true')
      const columns = async (client: Connection): Promise<boolean> => {
        const { columns: list } = await client.execute(
          'SELECT "key" FROM "kv"' + (isAtLeast(3, 0) ? ' WHERE "key" = 1' : ''),
        )
        return list[0]!.isNullable !== undefined
      }
      expect([await columns(one), await columns(two)]).toEqual([true, false])
      expect(proxy.stats().clientsBy.pinned).toBe(1)
    })

    it('keeps prepared statements of clients apart, over a change of the schema', async () => {
      await start()
      const [one, two] = [await login(), await login()]
      const [first, second] = [await one.prepare('SELECT 1 AS "a"'), await two.prepare('SELECT 1 AS "a"')]
      expect((await first.execute()).rows).toEqual([[1]])
      await first.release()
      expect((await second.execute()).rows).toEqual([[1]])
      await two.eval("box.schema.space.create('temporary'):drop()")
      // Expired at the server: the client hears what a server says, and prepares again.
      expect((await second.execute()).rows).toEqual([[1]])
    })

    describe.skipIf(!isAtLeast(2, 10))('with what 2.10 brought', () => {
      it('keeps transactions apart, and never says that a lost one was committed', async () => {
        const victim = await startTarantool({ lua: SETUP })
        try {
          await start({ targets: { one: { uri: victim.uri } }, limits: { connectWaitMs: 10_000 } })
          const [one, two] = [await login(), await login()]
          const [first, second] = [one.stream(), two.stream()]
          await first.begin()
          await second.begin()
          await first.insert('kv', [1, 'one'])
          await second.insert('kv', [2, 'two'])
          await first.rollback()
          await second.commit()
          expect(await one.select('kv', [])).toEqual([[2, 'two']])
          const doomed = one.stream()
          await doomed.begin()
          await doomed.insert('kv', [3, 'three'])
          victim.signal('SIGKILL')
          await victim.exited()
          await victim.start()
          await expect(doomed.commit()).rejects.toMatchObject({ boxCode: 97 })
          expect(await one.select('kv', [])).toEqual([])
          const again = one.stream()
          await again.begin()
          await again.insert('kv', [4, 'four'])
          await again.commit()
          expect(await one.select('kv', [])).toEqual([[4, 'four']])
        } finally {
          await victim.stop()
        }
      })

      it('tells watchers what is new after a restart, and nothing twice', async () => {
        const victim = await startTarantool({ lua: `${SETUP}\nbox.broadcast('same', 1)` })
        try {
          await start({ targets: { one: { uri: victim.uri } } })
          const client = await login()
          const seen: unknown[] = []
          client.watch('same', (value) => seen.push(value))
          await expect.poll(() => seen).toEqual([1])
          victim.signal('SIGKILL')
          await victim.exited()
          await victim.start()
          await expect.poll(() => proxy.stats().targets[0]!.state, { timeout: 10_000 }).toBe('up')
          await client.eval("box.broadcast('same', 2)")
          await expect.poll(() => seen).toEqual([1, 2])
        } finally {
          await victim.stop()
        }
      })

      it.skipIf(!isAtLeast(3, 0))('gives each client tuples in the form it asked for', async () => {
        await start()
        const [plain, rich] = [await login(), await login('alice', 'secret', true)]
        const [a] = await plain.call<[unknown]>('as_tuple')
        const [b] = await rich.call<[{ values: unknown[] }]>('as_tuple')
        expect(a).toEqual([1, 'one'])
        expect(b.values).toEqual([1, 'one'])
        expect(proxy.stats().lanes).toBe(2)
      })

      it('lets calls finish on a server that is told to stop, which then exits in time', async () => {
        const victim = await startTarantool({ lua: SETUP })
        try {
          await start({ targets: { one: { uri: victim.uri } }, limits: { pauseMaxWaitMs: 20_000 } })
          const client = await login()
          const slow = client.call('sleep', [1, 'done'])
          await expect.poll(() => proxy.stats().inFlight).toBe(1)
          const startedAt = performance.now()
          victim.signal('SIGTERM')
          expect(await slow).toEqual(['done'])
          const waiting = client.call('echo', ['later'])
          await victim.exited()
          expect(performance.now() - startedAt).toBeLessThan(2_900)
          await victim.start()
          expect(await waiting).toEqual(['later'])
        } finally {
          await victim.stop()
        }
      })
    })
  },
)
