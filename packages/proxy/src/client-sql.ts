/*
 * Prepared statements of one client on the lanes it happens to use. Numbers go through unchanged, for they are made from the
 * text; but a lane knows statements of all its clients, and a client must see its own and no other's.
 */
import {
  type BoxError,
  FrameHeader,
  isOrbweaverError,
  Key,
  prepareRequest,
  readReply,
  replyBody,
  RequestType,
} from '@orbweaver/iproto'
import { proxyErrors } from './errors.js'
import type { Lane, LaneAnswer } from './lane.js'
import { bodyOf } from './reply.js'
import type { QueuedRequest, ReplyNote } from './request-queue.js'
import { statementId, statementText } from './routing.js'
import { ClientStatements } from './statements.js'

export interface SqlHost {
  /** Nothing of this client is sent until `release`. */
  hold(): void
  release(): void
  /** Answers the request at the front with a reply of the target. */
  answerFront(frame: Buffer): void
  reprepared(): void
}

/** `error` undefined: answered with an empty success. */
export type SqlVerdict = 'send' | 'wait' | { readonly error: BoxError | undefined }

export class ClientSql {
  readonly statements: ClientStatements = new ClientStatements()
  readonly #host: SqlHost

  constructor(host: SqlHost) {
    this.#host = host
  }

  /** The text behind EXECUTE or PREPARE, also when it is named by its number. */
  textOf(request: QueuedRequest): string | undefined {
    const id = statementId(request.body)
    return id === undefined ? statementText(request.body) : this.statements.text(id)
  }

  /** What to do with a PREPARE or EXECUTE that would go to `lane`. */
  judge(request: QueuedRequest, lane: Lane): SqlVerdict {
    const id = statementId(request.body)
    if (id === undefined) return 'send'
    const text = this.statements.text(id)
    if (text === undefined) return { error: proxyErrors.wrongStatement(id) }
    if (request.type === RequestType.prepare) {
      if (lane.statements.isOnlyUser(id, this)) return 'send'
      this.statements.remove(id)
      lane.statements.remove(id, this)
      return { error: undefined }
    }
    if (lane.statements.isUsedBy(id, this)) return 'send'
    if (lane.statements.has(id)) {
      // Prepared there for others: the session knows it already.
      lane.statements.add(id, this)
      return 'send'
    }
    this.#prepareOn(lane, id, text)
    return 'wait'
  }

  /** The request goes out on `lane` in this turn. */
  sending(request: QueuedRequest, lane: Lane): void {
    if (request.type !== RequestType.prepare) return
    const id = statementId(request.body)
    if (id !== undefined) {
      this.statements.remove(id)
      lane.statements.remove(id, this)
      return
    }
    lane.statements.preparing()
    request.note = this.#remember(lane, statementText(request.body) ?? '')
  }

  /** The client has gone, or left this lane: what only it used is given back. */
  forget(lane: Lane): void {
    for (const id of lane.statements.removeUser(this)) {
      if (lane.isClosed) continue
      lane.ask({ type: RequestType.prepare, body: unprepareBody(id) }, NOBODY)
    }
  }

  #remember(lane: Lane, text: string): ReplyNote {
    return {
      answered: (status, frame) => {
        lane.statements.prepared()
        const id = status === RequestType.ok ? statementIdOf(frame) : undefined
        if (id === undefined) return
        this.statements.add(id, text)
        lane.statements.add(id, this)
      },
      lost: () => lane.statements.prepared(),
    }
  }

  #prepareOn(lane: Lane, id: number, text: string): void {
    this.#host.hold()
    this.#host.reprepared()
    lane.statements.preparing()
    const body = bodyOf((out) => prepareRequest(text).writeBody(out))
    lane.ask(
      { type: RequestType.prepare, body },
      {
        replied: (frame: Buffer, answer: LaneAnswer) => {
          lane.statements.prepared()
          if (answer.status === RequestType.ok) lane.statements.add(id, this)
          else this.#host.answerFront(frame)
          this.#host.release()
        },
        repliedLarge: () => undefined,
        lost: () => {
          lane.statements.prepared()
          this.#host.release()
        },
      },
    )
  }
}

function statementIdOf(frame: Buffer): number | undefined {
  const header = new FrameHeader()
  try {
    header.read(frame)
    return replyBody(readReply(frame, header)).uint(Key.stmtId)
  } catch (error) {
    // A large reply of which only the head is here, or one that is no PREPARE's: nothing to remember.
    if (!isOrbweaverError(error)) throw error
    return undefined
  }
}

function unprepareBody(id: number): Buffer {
  return bodyOf((out) => {
    out.mapHeader(1)
    out.uint(Key.stmtId)
    out.uint(id)
  })
}

const NOBODY = { replied: ignore, repliedLarge: (): undefined => undefined, lost: ignore }

function ignore(): void {
  // The proxy tidies up after a client: nobody waits for the answer.
}
