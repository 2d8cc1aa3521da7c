/* The first program of the proxy's README. */
import { connect } from '@orbweaver/connection'
import { createProxy } from '@orbweaver/proxy'
import { createStorage } from '@orbweaver/storage'
import { expect, it } from 'vitest'

it('four lines make a proxy', async () => {
  await using storage = createStorage({ name: 'one' })
  const instance = await storage.listen({ host: '127.0.0.1', port: 0 })
  if (!('port' in instance)) throw new TypeError('A port was asked for')

  const proxy = createProxy()
  proxy.setRw(`127.0.0.1:${instance.port}`)
  const address = await proxy.listen({ host: '127.0.0.1', port: 0 })

  const client = await connect({ uri: address })
  await client.ping()
  expect(proxy.stats()).toMatchObject({ clients: 1, rw: `127.0.0.1:${instance.port}` })
  client.destroy()
  await proxy.close({ graceMs: 0 })
})
