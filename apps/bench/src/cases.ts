/** What is measured, with whom, and which ratios are asked for. */
import { CODEC_CASES, type CodecCase } from './cases/codec.js'
import { MEMORY_CASES, type MemoryCase } from './cases/memory.js'
import { PROXY_CASES, type ProxyCase } from './cases/proxy.js'
import { ROUTER_CASES, type RouterCase } from './cases/router.js'
import { SERVER_CASES, type ServerCase } from './cases/server.js'
import { WIRE_CASES, type WireCase } from './cases/wire.js'

export type BenchCase = WireCase | CodecCase | ServerCase | MemoryCase | RouterCase | ProxyCase

export const CASES: readonly BenchCase[] = [
  ...WIRE_CASES,
  ...CODEC_CASES,
  ...SERVER_CASES,
  ...MEMORY_CASES,
  ...ROUTER_CASES,
  ...PROXY_CASES,
]
