/* What a parent and a child that runs an embedded storage say to each other, over the channel of child_process.fork. */
import type { ClusterConfig } from '@orbweaver/vshard'
import type { InstanceSpec } from './engine-driver.js'

export type ToChild =
  | { readonly say: 'start'; readonly spec: InstanceSpec }
  | { readonly say: 'promote'; readonly call: number }
  | { readonly say: 'apply'; readonly call: number; readonly config: ClusterConfig }
  | { readonly say: 'stop' }

export type ToParent =
  | { readonly say: 'started' }
  | { readonly say: 'failed'; readonly message: string; readonly code: string | undefined }
  | { readonly say: 'done'; readonly call: number; readonly error: string | undefined }
