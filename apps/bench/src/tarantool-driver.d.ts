// The parts of tarantool-driver 3.1.0 that are measured; the package has no types of its own.
declare module 'tarantool-driver' {
  import type { EventEmitter } from 'node:events'

  export default class TarantoolConnection extends EventEmitter {
    constructor(options: { host: string; port: number; lazyConnect?: boolean; retryStrategy?: () => unknown })
    connect(): Promise<void>
    select(
      space: number,
      index: number,
      limit: number,
      offset: number,
      iterator: string,
      key: unknown[],
    ): Promise<unknown[]>
    replace(space: number, tuple: unknown[]): Promise<unknown[]>
    call(name: string, ...args: unknown[]): Promise<unknown[]>
    disconnect(): void
  }
}
