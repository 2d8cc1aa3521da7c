/** For tests of this package and of everything above it: time that is told, and a server made of answers. */
export {
  PeerRequest,
  PeerSession,
  type RequestHandler,
  ScriptedPeer,
  type ScriptedPeerOptions,
  type SilentStep,
  uuidOf,
} from './scripted-peer.js'
export { VirtualClock } from './virtual-clock.js'
