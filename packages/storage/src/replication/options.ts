import type { Address, Credential } from '@orbweaver/connection'

/** An instance of the same replicaset. */
export interface PeerDefinition {
  /** Its number in the replicaset, from 1: the same on every instance. */
  readonly number: number
  /** What it says it is when it subscribes: the `uuid` of its own options. */
  readonly uuid: string
  readonly address: Address
}

export interface ReplicationOptions {
  /** This instance's number, from 1. */
  readonly number: number
  readonly peers: readonly PeerDefinition[]
  /** How this instance logs in at its peers. */
  readonly credential?: Credential
  /** Instances that must have a write before it is acknowledged, this one included. Default 1. */
  readonly quorum?: number
  /** How long a write waits for them. Default 5,000. */
  readonly quorumTimeoutMs?: number
}

/** Who an instance is, in the words of its peers. */
export interface InstanceIdentity {
  readonly uuid: string
  /** undefined where nobody told it. */
  readonly replicasetUuid: string | undefined
}
