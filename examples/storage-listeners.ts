// What an application may hear of a storage, and do before it moves a bucket or gives its role up.
import { createStorage } from '@orbweaver/storage'

await using storage = createStorage({ name: 'example', vshard: { bucketCount: 10 }, hookTimeoutMs: 1_000 })

// The role, at once and with each change.
storage.vshard.onMasterEnable(() => console.log('this is the master'))
storage.vshard.onMasterDisable(() => console.log('this is no master'))

// Async, and up to a bound the storage waits for it. Thrown before a move, an error would refuse the move.
storage.before('demote', async ({ term, signal }) => {
  await new Promise((resolve) => setTimeout(resolve, 10))
  console.log(`finished what was begun in term ${term}, in time: ${!signal.aborted}`)
})
storage.before('shutdown', ({ isReadonly }) => console.log(`closing, read-only: ${isReadonly}`))

// The same event as over the wire.
const seen: unknown[] = []
storage.watch('vshard.storage.election', (value) => seen.push(value))

storage.start()
await new Promise((resolve) => setTimeout(resolve, 10))
await storage.demote()
await new Promise((resolve) => setTimeout(resolve, 10))
for (const value of seen) console.log(value)

/* Prints:
 * this is no master
 * this is the master
 * finished what was begun in term 1, in time: true
 * this is no master
 * { term: 1, role: 'leader', is_ro: false, leader: 1 }
 * { term: 1, role: 'follower', is_ro: true, leader: 1 }
 * closing, read-only: true
 */
