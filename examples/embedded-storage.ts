// A storage inside this process, reached without a socket: what a test of an application needs.
import { createConnection } from '@orbweaver/connection'
import { BoxError } from '@orbweaver/iproto'
import { createStorage, values } from '@orbweaver/storage'

await using storage = createStorage({
  name: 'example',
  users: { app: { password: 'secret', rights: { execute: ['seats.*'], read: ['seats'] } } },
})

storage.createSpace('seats', {
  format: [
    { name: 'number', type: 'unsigned' },
    { name: 'guest', type: 'string', isNullable: true },
  ],
})
const seats = storage.space<[number: number, guest: string | null]>('seats')
for (const number of [1, 2, 3]) seats.insert([number, null])

// Functions of the server in TypeScript. As in Lua, an expected failure is a second value.
storage.define('seats.take', (context, guest) => {
  if (typeof guest !== 'string') return values(null, 'a guest has a name')
  const space = context.space<[number, string | null]>('seats')
  const free = space.select().find(([, taken]) => taken === null)
  if (free === undefined) return values(null, 'all seats are taken')
  return space.update([free[0]], [['=', 'guest', guest]])
})

// The client's end of a connection in memory. With `user` it is logged in already.
await using connection = createConnection({ uri: { connect: () => storage.connect({ user: 'app' }) } })
await connection.connect()

for (const guest of ['Ann', 'Bob', 'Cem', 'Dora']) {
  const [seat, problem] = await connection.call('seats.take', [guest])
  console.log(guest, seat ?? problem)
}
console.log('seen by the program:', seats.count(), 'seats,', seats.get([2]))

try {
  await connection.insert('seats', [4, 'Dora'])
} catch (error) {
  if (!(error instanceof BoxError)) throw error
  console.log(`${error.boxCode}: ${error.message}`)
}

const { isReadonly, sessions } = storage.info()
console.log({ isReadonly, sessions })

/* Prints:
 * Ann [ 1, 'Ann' ]
 * Bob [ 2, 'Bob' ]
 * Cem [ 3, 'Cem' ]
 * Dora all seats are taken
 * seen by the program: 3 seats, [ 2, 'Bob' ]
 * 42: Write access to space 'seats' is denied for user 'app'
 * { isReadonly: false, sessions: 1 }
 */
