import { encodeValue, Key } from '@orbweaver/iproto'
import { STORAGE_FUNCTIONS } from '@orbweaver/vshard'
import type { ServiceName } from '@orbweaver/vshard'

/**
 * The body of a call of a storage's service up to the service's own arguments, encoded once: what follows is written by hand, since
 * every map writes it twice per replicaset.
 * @param args - how many arguments will follow, at most 14
 */
export function serviceHead(service: ServiceName, args: number): Buffer {
  return Buffer.concat([
    Buffer.of(MAP_OF_TWO, Key.functionName),
    encodeValue(STORAGE_FUNCTIONS.service),
    Buffer.of(Key.tuple, EMPTY_ARRAY + 1 + args),
    encodeValue(service),
  ])
}

const MAP_OF_TWO = 0x82
const EMPTY_ARRAY = 0x90
