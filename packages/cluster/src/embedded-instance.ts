/* The embedded engine as instances of a cluster: in this process, or each in a child of its own. */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { ClusterConfig } from '@orbweaver/vshard'
import type { Storage } from '@orbweaver/storage'
import type { EngineDriver, InstanceSpec, RunningInstance } from './engine-driver.js'
import type { ToChild, ToParent } from './embedded-messages.js'
import { applyConfig, startEmbeddedStorage } from './embedded-storage.js'
import { findInstance } from './find-instance.js'

export const embeddedEngine: EngineDriver = {
  name: 'embedded',
  missing: () => undefined,
  start: (spec) => (spec.inProcess ? startHere(spec) : startChild(spec)),
}

async function startHere(spec: InstanceSpec): Promise<RunningInstance> {
  return new InstanceHere(await startEmbeddedStorage(spec), findInstance(spec).instance.uri)
}

class InstanceHere implements RunningInstance {
  readonly uri: string
  readonly storage: Storage
  readonly exited: Promise<number | string>
  #ended: (how: number | string) => void = () => undefined

  constructor(storage: Storage, uri: string) {
    this.storage = storage
    this.uri = uri
    this.exited = new Promise((resolve) => {
      this.#ended = resolve
    })
  }

  promote(): Promise<void> {
    return this.storage.promote()
  }

  apply(config: ClusterConfig): Promise<void> {
    applyConfig(this.storage, config)
    return Promise.resolve()
  }

  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    if (name === 'SIGSTOP' || name === 'SIGCONT')
      throw new InvalidArgumentError(`${name} needs an instance in a process of its own (inProcess: false)`)
    void this.storage
      .close(name === 'SIGKILL' ? { graceMs: 0 } : {})
      .then(() => this.#ended(name === 'SIGKILL' ? name : 0))
  }
}

/** From source (tests) the child starts from the build; from the build, from its neighbour. */
function mainPath(): string {
  const self = import.meta.url
  return fileURLToPath(new URL(self.endsWith('.ts') ? '../dist/embedded-main.js' : './embedded-main.js', self))
}

/** The end of what a child wrote to stderr, for the error when it dies at the start. */
const STDERR_TAIL_BYTES = 4_096

async function startChild(spec: InstanceSpec): Promise<RunningInstance> {
  if (typeof spec.setUp === 'function')
    throw new InvalidArgumentError('setUp must be the URL of a module where instances run in processes of their own')
  const child = fork(mainPath(), [], {
    stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
    execArgv: [],
    serialization: 'advanced',
  })
  const instance = new ChildInstance(child, findInstance(spec).instance.uri)
  await instance.start(spec)
  return instance
}

class ChildInstance implements RunningInstance {
  readonly uri: string
  readonly exited: Promise<number | string>
  readonly #child: ChildProcess
  #stderr = ''
  #lastCall = 0
  readonly #calls = new Map<number, { resolve: () => void; reject: (error: Error) => void }>()

  constructor(child: ChildProcess, uri: string) {
    this.uri = uri
    this.#child = child
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        for (const { reject } of this.#calls.values())
          reject(new Error(`The instance at ${uri} ended (${signal ?? code ?? 'unknown'}) in the middle of a change`))
        this.#calls.clear()
        resolve(signal ?? code ?? 0)
      })
    })
    child.stderr?.on('data', (chunk: Buffer) => {
      process.stderr.write(chunk)
      this.#stderr = (this.#stderr + chunk.toString()).slice(-STDERR_TAIL_BYTES)
    })
    child.on('message', (message) => this.#hear(message as ToParent))
  }

  start(spec: InstanceSpec): Promise<void> {
    return new Promise((resolve, reject) => {
      const onMessage = (message: unknown): void => {
        const heard = message as ToParent
        if (heard.say === 'started') resolve()
        else if (heard.say === 'failed')
          reject(
            Object.assign(new Error(`The instance at ${this.uri} did not start: ${heard.message}`), {
              code: heard.code,
            }),
          )
      }
      this.#child.on('message', onMessage)
      void this.exited.then((how) => {
        this.#child.off('message', onMessage)
        reject(
          new Error(
            `The instance at ${this.uri} ended (${how}) before it was up${this.#stderr === '' ? '' : `: ${this.#stderr.trim()}`}`,
          ),
        )
      })
      this.#say({ say: 'start', spec })
    })
  }

  promote(): Promise<void> {
    return this.#ask((call) => ({ say: 'promote', call }))
  }

  apply(config: ClusterConfig): Promise<void> {
    return this.#ask((call) => ({ say: 'apply', call, config }))
  }

  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(name)
  }

  #ask(question: (call: number) => ToChild): Promise<void> {
    return new Promise((resolve, reject) => {
      const call = ++this.#lastCall
      this.#calls.set(call, { resolve, reject })
      this.#say(question(call))
    })
  }

  #say(message: ToChild): void {
    if (this.#child.connected) this.#child.send(message)
  }

  #hear(message: ToParent): void {
    if (message.say !== 'done') return
    const waiting = this.#calls.get(message.call)
    this.#calls.delete(message.call)
    if (message.error === undefined) waiting?.resolve()
    else waiting?.reject(new Error(message.error))
  }
}
