// One connection to one instance: rows by names, pages, a stored function, and what an error tells.
// The server is an embedded storage in this process; a real Tarantool takes its place by another address.
import { connect } from '@orbweaver/connection'
import { BoxError } from '@orbweaver/iproto'
import { createStorage } from '@orbweaver/storage'

await using storage = createStorage({ name: 'example', users: { app: { password: 'secret', rights: 'super' } } })
storage.createSpace('cities', {
  format: [
    { name: 'id', type: 'unsigned' },
    { name: 'name', type: 'string' },
    { name: 'people', type: 'unsigned' },
  ],
  indexes: [
    { name: 'primary', parts: ['id'] },
    { name: 'people', parts: ['people'], isUnique: false },
  ],
})
storage.define('people_in', (context, name) => {
  const city = context
    .space<City>('cities')
    .select()
    .find((row) => row[1] === name)
  return city?.[2] ?? null
})
const address = await storage.listen({ host: '127.0.0.1', port: 0 })

type City = [id: number, name: string, people: number]

await using connection = await connect({ uri: address, user: 'app', password: 'secret' })

// Called in parallel, these leave in one write and are answered in one go.
await Promise.all([
  connection.insert('cities', [1, 'Oslo', 709_037]),
  connection.insert('cities', [2, 'Kyoto', 1_463_723]),
  connection.insert('cities', [3, 'Lima', 9_751_717]),
])

const [oslo] = await connection.select<City>('cities', [1])
console.log('the row with key 1:', oslo)

const largest = await connection.select<City>('cities', [], { index: 'people', iterator: 'LE', limit: 2 })
console.log('the two largest:', largest.map(([, name]) => name).join(', '))

const grown = await connection.update<City>('cities', [1], [['+', 'people', 963]])
console.log('after an update:', grown?.[2])

for await (const [id, name] of connection.iterate<City>('cities', [], { pageSize: 2 }))
  console.log(`page by page: ${id} ${name}`)

const [people] = await connection.call<[number | null]>('people_in', ['Lima'])
console.log('from a stored function:', people)

try {
  await connection.insert('cities', [1, 'Oslo', 0])
} catch (error) {
  if (!(error instanceof BoxError)) throw error
  console.log(`${error.code} ${error.boxCode}: ${error.message}; executed: ${error.executed}`)
}

/* Prints:
 * the row with key 1: [ 1, 'Oslo', 709037 ]
 * the two largest: Lima, Kyoto
 * after an update: 710000
 * page by page: 1 Oslo
 * page by page: 2 Kyoto
 * page by page: 3 Lima
 * from a stored function: 9751717
 * ORB_BOX 3: Duplicate key exists in unique index 'primary' in space 'cities'; executed: yes
 */
