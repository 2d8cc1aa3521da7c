// A transaction over several requests: a stream carries it. On Tarantool it needs memtx_use_mvcc_engine.
import { connect, type Connection } from '@orbweaver/connection'
import { createStorage } from '@orbweaver/storage'

await using storage = createStorage({ name: 'example', users: { app: { password: 'secret', rights: 'super' } } })
storage.createSpace('accounts', {
  format: [
    { name: 'owner', type: 'string' },
    { name: 'balance', type: 'integer' },
  ],
})
const address = await storage.listen({ host: '127.0.0.1', port: 0 })

await using connection = await connect({ uri: address, user: 'app', password: 'secret' })
await connection.insert('accounts', ['ann', 100])
await connection.insert('accounts', ['bob', 20])

/** Both accounts change, or none. */
async function transfer(from: string, to: string, amount: number): Promise<void> {
  await connection.transaction(async (stream) => {
    const [payer] = await Promise.all([
      stream.update<[string, number]>('accounts', [from], [['-', 'balance', amount]]),
      stream.update('accounts', [to], [['+', 'balance', amount]]),
    ])
    if (payer === undefined || payer[1] < 0) throw new Error(`${from} cannot pay ${amount}`)
  })
}

async function balances(where: Pick<Connection, 'select'> = connection): Promise<string> {
  const rows = await where.select<[string, number]>('accounts')
  return rows.map(([owner, balance]) => `${owner} ${balance}`).join(', ')
}

await transfer('ann', 'bob', 70)
console.log('after a transfer:', await balances())

try {
  await transfer('ann', 'bob', 70)
} catch (error) {
  console.log('refused:', (error as Error).message)
}
console.log('nothing of it stayed:', await balances())

// The steps one by one. Leaving the block without a commit rolls back.
{
  await using stream = connection.stream()
  await stream.begin()
  await stream.replace('accounts', ['ann', 1_000_000])
  console.log('inside:', await balances(stream))
  console.log('outside:', await balances())
}
console.log('after the block:', await balances())

/* Prints:
 * after a transfer: ann 30, bob 90
 * refused: ann cannot pay 70
 * nothing of it stayed: ann 30, bob 90
 * inside: ann 1000000, bob 90
 * outside: ann 30, bob 90
 * after the block: ann 30, bob 90
 */
