/** The process of an embedded storage that is measured, and its starter's end. It ends with the process that started it. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createStorage } from '@orbweaver/storage'
import { SPACE_ID } from '../fixture.js'
import type { MeasuredServer } from './measured-server.js'

/** The argument that makes the program a server instead of the bench. */
export const SERVER_FLAG = '--as-storage'

export interface StorageProcessOptions {
  readonly isDurable?: boolean
  /** A second index, over the second field. */
  readonly hasSecondIndex?: boolean
}

type ToParent = { readonly port: number } | { readonly failure: string }

/** @param main - the program's main file. @throws Error in the storage's own words */
export async function startStorageProcess(main: string, options: StorageProcessOptions = {}): Promise<MeasuredServer> {
  const dir = options.isDurable === true ? mkdtempSync(join(tmpdir(), 'orbweaver-bench-')) : ''
  const args = [main, SERVER_FLAG, dir, options.hasSecondIndex === true ? 'two' : 'one']
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const stop = (): void => {
    process.off('exit', stop)
    child.kill('SIGKILL')
    if (dir !== '') rmSync(dir, { recursive: true, force: true })
  }
  process.once('exit', stop)
  try {
    const answer = await new Promise<ToParent>((resolve, reject) => {
      child.once('message', (message) => resolve(message as ToParent))
      child.once('error', reject)
      child.once('exit', (code) => reject(new Error(`The storage ended with ${code ?? 'a signal'}`)))
    })
    if ('failure' in answer) throw new Error(answer.failure)
    return { pid: child.pid!, port: answer.port, stop }
  } catch (error) {
    stop()
    throw error
  }
}

/** The child's end. */
export async function serveStorage(): Promise<void> {
  const tell = (message: ToParent): boolean | undefined => process.send?.(message)
  process.on('disconnect', () => process.exit(0))
  process.on('SIGINT', () => {})
  try {
    tell({ port: await openStorage(process.argv[3] ?? '', process.argv[4] === 'two') })
  } catch (error) {
    tell({ failure: error instanceof Error ? error.message : String(error) })
  }
}

async function openStorage(dir: string, hasSecondIndex: boolean): Promise<number> {
  const storage = createStorage({
    name: 'bench',
    ...(dir === '' ? {} : { durability: 'full', dir }),
    // What is measured against it keeps everything in its journal too: no snapshot in the middle of a round.
    snapshotBytes: Number.MAX_SAFE_INTEGER,
    snapshotRows: Number.MAX_SAFE_INTEGER,
  })
  storage.setUser('guest', { rights: 'super' })
  await storage.open()
  storage.createSpace('bench', {
    format: [
      { name: 'id', type: 'unsigned' },
      { name: 'second', type: 'string' },
    ],
    indexes: [
      { name: 'primary', parts: ['id'] },
      ...(hasSecondIndex ? [{ name: 'second', parts: ['second'], isUnique: false }] : []),
    ],
  })
  if (storage.space('bench').id !== SPACE_ID) throw new Error(`The first space of a storage is not ${SPACE_ID}`)
  const address = await storage.listen({ host: '127.0.0.1', port: 0 })
  if (!('port' in address)) throw new Error('The storage listens without a port')
  return address.port
}
