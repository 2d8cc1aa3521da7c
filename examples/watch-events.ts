// Events: whoever watches a key hears its value at once and every change from then on.
import { connect } from '@orbweaver/connection'
import { createStorage } from '@orbweaver/storage'

await using storage = createStorage({ name: 'example', users: { app: { password: 'secret', rights: 'super' } } })
storage.broadcast('orders.open', 1)
const address = await storage.listen({ host: '127.0.0.1', port: 0 })

await using connection = await connect({ uri: address, user: 'app', password: 'secret' })

// As a loop: the newest value each time the loop asks. A slow loop passes over values, it never falls behind.
for await (const open of connection.watchValues('orders.open')) {
  console.log('open orders:', open)
  if (open === 3) break
  storage.broadcast('orders.open', Number(open) + 1)
}

// As a callback. Every instance says by itself whether it takes writes.
const status = await new Promise((resolve) => {
  const stop = connection.watch('box.status', (value) => {
    stop()
    resolve(value)
  })
})
console.log('box.status:', status)

// Only the value of this moment.
console.log('once:', await connection.watchOnce('orders.open'))
console.log('never set:', await connection.watchOnce('orders.closed'))

/* Prints:
 * open orders: 1
 * open orders: 2
 * open orders: 3
 * box.status: { is_ro: false, is_ro_cfg: false, status: 'running' }
 * once: 3
 * never set: undefined
 */
