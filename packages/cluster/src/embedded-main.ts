/*
 * The child process of an embedded instance. It ends when it is told to, by a signal, and with its parent: the channel closes
 * then, however the parent died.
 */
import type { Storage } from '@orbweaver/storage'
import type { ToChild, ToParent } from './embedded-messages.js'
import { applyConfig, startEmbeddedStorage } from './embedded-storage.js'

let storage: Storage | undefined

function tell(message: ToParent): void {
  if (process.connected) process.send?.(message)
}

async function stop(): Promise<void> {
  await storage?.close()
  process.exit(0)
}

async function answer(call: number, work: () => unknown): Promise<void> {
  try {
    await work()
    tell({ say: 'done', call, error: undefined })
  } catch (error) {
    tell({ say: 'done', call, error: (error as Error).message })
  }
}

async function take(message: ToChild): Promise<void> {
  switch (message.say) {
    case 'start':
      try {
        storage = await startEmbeddedStorage(message.spec)
        tell({ say: 'started' })
      } catch (error) {
        const { message: text, code } = error as Error & { code?: string }
        tell({ say: 'failed', message: text, code })
        process.exitCode = 1
        process.disconnect()
      }
      return
    case 'promote':
      await answer(message.call, async () => storage?.promote())
      return
    case 'apply':
      await answer(message.call, () => applyConfig(storage, message.config))
      return
    case 'stop':
      await stop()
  }
}

process.on('message', (message) => void take(message as ToChild))
process.on('disconnect', () => process.exit())
process.on('SIGTERM', () => void stop())
// Ctrl-C reaches the whole group of a terminal; the parent decides how its instances end.
process.on('SIGINT', () => undefined)
