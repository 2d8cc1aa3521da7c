/* The door for operators over real HTTP. */
import { request as httpRequest } from 'node:http'
import { type Connection, connect } from '@orbweaver/connection'
import { type AdminOptions, createProxy, type Proxy } from '@orbweaver/proxy'
import { createStorage, type Storage } from '@orbweaver/storage'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

let storages: Storage[]
let proxy: Proxy
let client: Connection
let door: number

beforeEach(() => {
  storages = ['a', 'b'].map((name) => {
    const storage = createStorage({ name, users: { guest: { rights: 'super' } } })
    storage.define('where', () => name)
    return storage
  })
})

afterEach(async () => {
  client.destroy()
  await proxy.close({ graceMs: 0 })
  for (const storage of storages) await storage.close({ graceMs: 0 })
})

async function start(admin: Partial<AdminOptions> = {}): Promise<void> {
  proxy = createProxy({
    listen: [{ host: '127.0.0.1', port: 0 }],
    targets: Object.fromEntries(storages.map((storage) => [storage.name, { embedded: storage }])),
    rw: 'a',
    admin: { port: 0, ...admin },
  })
  const address = await proxy.listen()
  client = await connect({ uri: address })
  const { adminAddress } = proxy
  if (adminAddress === undefined || !('port' in adminAddress)) throw new TypeError('There is no door')
  door = adminAddress.port
}

interface Answer {
  readonly status: number
  readonly text: string
  readonly value: Record<string, unknown>
}

function ask(
  method: string,
  path: string,
  options: { body?: unknown; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const body = options.body === undefined ? undefined : JSON.stringify(options.body)
  const headers = { ...(method === 'POST' ? { 'content-type': 'application/json' } : {}), ...options.headers }
  return new Promise((resolve, reject) => {
    const request = httpRequest({ host: '127.0.0.1', port: door, method, path, headers }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => void chunks.push(chunk))
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        const isJson = response.headers['content-type'] === 'application/json'
        resolve({ status: response.statusCode ?? 0, text, value: isJson ? (JSON.parse(text) as Answer['value']) : {} })
      })
    })
    request.on('error', reject)
    request.end(body)
  })
}

const get = (path: string, headers?: Record<string, string>): Promise<Answer> =>
  ask('GET', path, headers === undefined ? {} : { headers })
const post = (path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  ask('POST', path, { body, headers })

describe('the door for operators', () => {
  it('shows what the proxy does', async () => {
    await start()
    await client.call('where')
    expect((await get('/status')).value).toMatchObject({ clients: 1, rw: 'a', isPaused: false })
    expect((await get('/targets')).value['targets']).toMatchObject([
      { name: 'a', state: 'up', isRw: true },
      { name: 'b', isRw: false },
    ])
    expect((await get('/clients')).value['clients']).toMatchObject([{ user: 'guest', activity: 'idle' }])
    expect((await get('/clients?limit=0')).status).toBe(400)
    expect((await get('/lanes')).value['lanes']).toMatchObject([{ target: 'a', user: 'guest', state: 'open' }])
    expect((await get('/healthz')).status).toBe(200)
    expect((await get('/readyz')).value).toEqual({ isReady: true, rw: 'a' })
  })

  it('gives metrics that Prometheus understands', async () => {
    await start()
    for (let i = 0; i < 5; i++) await client.call('where')
    const { status, text } = await get('/metrics')
    expect(status).toBe(200)
    expect(text).toMatch(/^orbweaver_proxy_requests_total\{type="10",target="a",class="rw"\} 5$/m)
    expect(text).toMatch(/^# TYPE orbweaver_proxy_request_duration_seconds histogram$/m)
    expect(text).toMatch(/^process_cpu_seconds_total /m)
  })

  it('changes the master, and tells how it went', async () => {
    await start()
    expect(await client.call('where')).toEqual(['a'])
    const { value } = await post('/failover', { to: 'b', drainTimeoutMs: 1_000 })
    expect(value).toMatchObject({ id: 1, to: 'b', state: 'running' })
    await expect.poll(async () => (await get('/ops/1')).value['state']).toBe('done')
    expect((await get('/ops/1')).value['report']).toMatchObject({ from: 'a', to: 'b', outcome: 'ok' })
    expect(await client.call('where')).toEqual(['b'])
    expect((await post('/rw', { target: 'a' })).status).toBe(200)
    expect(await client.call('where')).toEqual(['a'])
  })

  it('says what was wrong with a change, and changes nothing', async () => {
    await start()
    for (const [path, body, status] of [
      ['/failover', {}, 400],
      ['/failover', { to: 'b', drainTimeoutMs: '5' }, 400],
      ['/failover', { to: 'b', colour: 'red' }, 400],
      ['/rw', { target: 'nowhere' }, 400],
      ['/ro', { targets: 'b' }, 400],
      ['/kill', { client: 99 }, 404],
      ['/reload', undefined, 404],
      ['/nothing', undefined, 404],
    ] as const)
      expect([path, (await post(path, body)).status]).toEqual([path, status])
    expect((await ask('DELETE', '/status')).status).toBe(405)
    expect((await get('/ops/7')).status).toBe(404)
    await post('/failover', { to: 'nowhere' })
    const operations = (await get('/ops')).value['operations'] as { state: string; error: string }[]
    expect(operations.at(-1)).toMatchObject({ state: 'failed' })
    expect(operations.at(-1)?.error).toMatch(/nowhere/)
    expect(proxy.stats().rw).toBe('a')
  })

  it('works while the proxy is paused, and lets it go on', async () => {
    await start()
    await post('/pause')
    const waiting = client.call('where')
    await expect.poll(async () => (await get('/status')).value['buffered']).toBe(1)
    expect((await get('/clients')).value['clients']).toMatchObject([{ activity: 'paused' }])
    await post('/resume')
    expect(await waiting).toEqual(['a'])
  })

  it('ends a client by its number', async () => {
    await start()
    const [{ id }] = (await get('/clients')).value['clients'] as [{ id: number }]
    expect((await post('/kill', { client: id })).status).toBe(200)
    await expect.poll(async () => (await get('/clients')).value['clients']).not.toMatchObject([{ id }])
  })

  it('opens to those only that show a token, where there is one, and lets some only look', async () => {
    await start({ token: 'all', readToken: 'look' })
    const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })
    expect((await get('/status')).status).toBe(401)
    expect((await get('/status', bearer('wrong'))).status).toBe(401)
    expect((await get('/status', bearer('look'))).status).toBe(200)
    expect((await post('/pause', undefined, bearer('look'))).status).toBe(403)
    expect((await post('/pause', undefined, bearer('all'))).status).toBe(200)
    expect((await get('/status', bearer('all'))).value).toMatchObject({ isPaused: true })
    // What looks after the process needs none.
    expect((await get('/healthz')).status).toBe(200)
  })

  it('is not for pages that a browser on this machine shows', async () => {
    await start()
    expect((await get('/status', { host: `evil.example:${door}` })).status).toBe(403)
    expect((await post('/pause', {}, { 'content-type': 'text/plain' })).status).toBe(415)
    expect(proxy.stats().isPaused).toBe(false)
  })
})
