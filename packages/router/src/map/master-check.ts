import type { ReplySink } from '@orbweaver/connection'
import { decodeData, isOrbweaverError, RequestType } from '@orbweaver/iproto'
import type { BodyWriter, OrbweaverError, Reply, Request } from '@orbweaver/iproto'
import { readInfo, SERVICES } from '@orbweaver/vshard'
import type { HeldRef } from './held-ref.js'
import { serviceHead } from './service-head.js'

export interface CheckListener {
  /** @param isMaster - false also when it could not be found out: `error` says why */
  checked(ref: HeldRef, isMaster: boolean, error: OrbweaverError | undefined): void
}

/** Asks whether the instance of a reference is the master, and was ever since: what is believed of a server without events may be old. */
export class MasterCheck implements Request, ReplySink {
  readonly type: number = RequestType.call
  readonly requestClass = 'code'
  readonly #ref: HeldRef
  readonly #listener: CheckListener

  constructor(ref: HeldRef, listener: CheckListener) {
    this.#ref = ref
    this.#listener = listener
  }

  writeBody(out: BodyWriter): void {
    out.raw(INFO)
  }

  done(reply: Reply): void {
    let isMaster: boolean
    try {
      const info = readInfo(decodeData(reply))
      isMaster = info.ok && info.value.isMaster && !this.#ref.isDoubtful
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.failed(error)
      return
    }
    this.#listener.checked(this.#ref, isMaster, undefined)
  }

  failed(error: OrbweaverError): void {
    this.#listener.checked(this.#ref, false, error)
  }
}

const INFO = serviceHead(SERVICES.info, 0)
