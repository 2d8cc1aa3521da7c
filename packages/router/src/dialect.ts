/* How vshard storages say who they are: what the replicaset is told, so that it needs to know nothing of vshard. */
import { BoxError, callRequest, decodeData, ErrorCode, skipValue } from '@orbweaver/iproto'
import type { Reply } from '@orbweaver/iproto'
import type { Dialect, Verdict } from '@orbweaver/replicaset'
import { asVshardError, infoCall, readInfo, restoreError, VshardError } from '@orbweaver/vshard'

const NIL = 0xc0

export const vshardDialect: Dialect = {
  poll: {
    request: () => {
      const { name, args } = infoCall()
      return callRequest(name, args)
    },
    read: (reply) => {
      const info = readInfo(decodeData(reply))
      if (!info.ok) return undefined
      return { isMaster: info.value.isMaster, ...(info.value.name === undefined ? {} : { name: info.value.name }) }
    },
  },
  judge,
  electionKeys: [],
}

/** vshard's functions are missing or may not be called: an instance that is not set up yet, or one in the middle of an upgrade. */
const NOT_SET_UP: ReadonlySet<number> = new Set([ErrorCode.accessDenied, ErrorCode.noSuchProc])

/** Looks at the first bytes of a reply and decodes it only when it is `[nil, …]`. */
function judge(outcome: Reply | BoxError): Verdict | undefined {
  // Errors of user functions travel inside results; what fails as a whole is the call of vshard's own function.
  if (outcome instanceof BoxError && NOT_SET_UP.has(outcome.boxCode))
    return { says: 'unusable', reason: outcome.message }
  const error = outcome instanceof BoxError ? restoreError(outcome) : refusalIn(outcome)
  if (!(error instanceof VshardError)) return undefined
  if (error.vshardName === 'NON_MASTER') return { says: 'notMaster', refused: true, hint: error.master }
  if (error.vshardName === 'STORAGE_IS_DISABLED') return { says: 'unusable', reason: error.message }
  return undefined
}

function refusalIn(reply: Reply): VshardError | undefined {
  const { frame, dataStart, dataEnd } = reply
  if (dataStart === dataEnd) return undefined
  const first = firstElement(frame, dataStart)
  if (first === undefined || frame[first] !== NIL || skipValue(frame, first, dataEnd) >= dataEnd) return undefined
  return asVshardError(decodeData(reply)[1])
}

/** Where the first element of the array at `start` begins; undefined for an empty one. */
function firstElement(frame: Buffer, start: number): number | undefined {
  const lead = frame[start]!
  if (lead > 0x90 && lead <= 0x9f) return start + 1
  if (lead === 0xdc) return frame.readUInt16BE(start + 1) === 0 ? undefined : start + 3
  if (lead === 0xdd) return frame.readUInt32BE(start + 1) === 0 ? undefined : start + 5
  return undefined
}
