import { Tally } from './tally.js'

/** What has happened since the start. Plain numbers, written by whoever it happens to. */
export class Counters {
  requests = 0
  replies = 0
  pushes = 0
  /** Answered with an error of the proxy's own. */
  synthesized = 0
  /** Of those, the ones whose outcome is not known. */
  unknownOutcomes = 0
  clientsAccepted = 0
  logins = 0
  badLogins = 0
  /** The proxy's own check was passed, and the storage refused. */
  staleLogins = 0
  lanesOpened = 0
  lanesClosed = 0
  /** Requests for the master that had to wait at the gate. */
  gated = 0
  streamsBroken = 0
  readingPauses = 0
  slowReadersClosed = 0
  pins = 0
  reprepared = 0
  failovers = 0
  /** What is rare, with its labels: names of metrics. */
  readonly tally: Tally = new Tally()
}
