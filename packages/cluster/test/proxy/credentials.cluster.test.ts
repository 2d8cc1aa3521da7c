/* Where the proxy knows passwords from: each way in front of a real server, and what a change of a password does. */
import { type Connection, connect } from '@orbweaver/connection'
import { hash2Of } from '@orbweaver/iproto'
import { createProxy, type CredentialOptions, type Proxy } from '@orbweaver/proxy'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { missingTarantool, startTarantool, tarantoolVersion, type TarantoolServer } from '../tarantool.js'

const SETUP = `
for name, password in pairs({alice = 'secret', reader = 'reader', poor = 'p'}) do
  box.schema.user.create(name, {password = password, if_not_exists = true})
end
box.schema.user.grant('alice', 'super', nil, nil, {if_not_exists = true})
box.schema.user.grant('reader', 'read', 'space', '_user', {if_not_exists = true})
box.schema.func.create('whoami', {if_not_exists = true})
box.schema.role.grant('public', 'execute', 'function', 'whoami', {if_not_exists = true})
function whoami() return box.session.user() end
function passwd(name, password) box.session.su('admin', box.schema.user.passwd, name, password) end
`

const hashOf = (password: string): string => Buffer.from(hash2Of(password)).toString('base64')

/** Each with: does a new password get in as soon as the server has it? */
const MODES: readonly (readonly [credentials: CredentialOptions, knowsNew: boolean])[] = [
  [{ mode: 'static', users: { alice: hashOf('secret'), poor: hashOf('p') } }, false],
  [{ mode: 'query', user: 'reader', password: 'reader' }, true],
  [{ mode: 'learn' }, true],
]

describe.skipIf(missingTarantool !== undefined).each(MODES)(
  `credentials from %o, Tarantool ${tarantoolVersion}${missingTarantool === undefined ? '' : ` (skipped: ${missingTarantool})`}`,
  (credentials, knowsNew) => {
    let server: TarantoolServer
    let proxy: Proxy
    let uri: { host: string; port: number }
    const clients: Connection[] = []

    beforeAll(async () => {
      server = await startTarantool({ lua: SETUP })
      proxy = createProxy({ targets: { one: { uri: server.uri } }, rw: 'one', credentials })
      uri = (await proxy.listen({ host: '127.0.0.1', port: 0 })) as { host: string; port: number }
    })

    afterEach(() => {
      for (const client of clients.splice(0)) client.destroy()
    })

    afterAll(async () => {
      await proxy.close({ graceMs: 0 })
      await server.stop()
    })

    async function login(user: string, password: string): Promise<Connection> {
      const client = await connect({ uri, user, password, reconnect: false })
      clients.push(client)
      return client
    }

    it('lets in who knows the password, also a user without any rights, and nobody else', async () => {
      for (const [user, password] of [
        ['alice', 'secret'],
        ['poor', 'p'],
      ] as const) {
        expect(await (await login(user, password)).call('whoami')).toEqual([user])
      }
      for (const [user, password] of [
        ['alice', 'wrong'],
        ['alice', ''],
        ['nobody', 'secret'],
      ] as const) {
        await expect(login(user, password)).rejects.toMatchObject({ code: 'ORB_AUTH' })
      }
      const guest = await connect({ uri })
      clients.push(guest)
      expect(await guest.call('whoami')).toEqual(['guest'])
    })

    it('shares one connection among clients of a user', async () => {
      const all = await Promise.all(Array.from({ length: 5 }, () => login('alice', 'secret')))
      for (const client of all) expect(await client.call('whoami')).toEqual(['alice'])
      expect(proxy.stats().targets[0]!.lanes).toBeLessThanOrEqual(3)
    })

    it('hears of a change of the password at once', async () => {
      const before = await login('poor', 'p')
      const admin = await login('alice', 'secret')
      await admin.call('passwd', ['poor', 'new'])
      await expect(login('poor', 'p')).rejects.toMatchObject({ code: 'ORB_AUTH' })
      if (knowsNew) expect(await (await login('poor', 'new')).call('whoami')).toEqual(['poor'])
      else await expect(login('poor', 'new')).rejects.toMatchObject({ code: 'ORB_AUTH' })
      expect(await before.call('whoami')).toEqual(['poor'])
      await admin.call('passwd', ['poor', 'p'])
    })
  },
)
