/* What a parent and a child that runs an embedded storage say to each other, over the channel of child_process.fork. */
import type { InstanceSpec } from './engine-driver.js'

export type ToChild =
  | { readonly say: 'start'; readonly spec: InstanceSpec }
  | { readonly say: 'promote'; readonly call: number }
  | { readonly say: 'stop' }

export type ToParent =
  | { readonly say: 'started' }
  | { readonly say: 'failed'; readonly message: string; readonly code: string | undefined }
  | { readonly say: 'promoted'; readonly call: number; readonly error: string | undefined }
