// Which bucket a row belongs to, what is wrong with a configuration, and what a storage's refusal says.
import { ConfigError } from '@orbweaver/iproto'
import { bucketIdMpcrc32, readStorageCall, readVshardConfig, VshardError } from '@orbweaver/vshard'

// The same key is in the same bucket for every router, in whatever language it is written.
console.log('customer 42 is in bucket', bucketIdMpcrc32(42, 3000))
console.log('the same as a bigint:', bucketIdMpcrc32(42n, 3000))
console.log('by tenant and number:', bucketIdMpcrc32(['acme', 42], 3000))

// A configuration is read whole: every problem, its place and the way out.
try {
  readVshardConfig({
    bucket_count: 0,
    sharding: { west: { replicas: { a: { uri: 'localhost:3301' }, b: { uri: 'localhost:3301' } } } },
  })
} catch (error) {
  if (!(error instanceof ConfigError)) throw error
  for (const { path, message } of error.problems) console.log(`${path} ${message}`)
}

// What a storage answers when the bucket has moved away.
const moved = VshardError.of('WRONG_BUCKET', { bucket_id: 42, reason: 'write is prohibited', destination: 'east' })
const reply = readStorageCall([null, moved.toWire()])
if (reply.kind === 'refused' && reply.error instanceof VshardError) {
  console.log(`${reply.kind}: ${reply.error.vshardName}, go to ${reply.error.destination}`)
}

/* Prints:
 * customer 42 is in bucket 2769
 * the same as a bigint: 2769
 * by tenant and number: 750
 * bucket_count is 0, must be a whole number of at least 1
 * sharding.west.replicas.b.uri is the address of sharding.west.replicas.a.uri too: give every instance its own
 * refused: WRONG_BUCKET, go to east
 */
