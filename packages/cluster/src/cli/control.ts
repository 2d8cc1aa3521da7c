/*
 * How commands reach the process that holds a cluster: a unix socket of this user's, one line of JSON there and one line back.
 * The file of the cluster says where it is.
 */
import { once } from 'node:events'
import { connect as connectSocket, createServer } from 'node:net'
import type { Server, Socket } from 'node:net'
import { createInterface } from 'node:readline'

export interface ControlRequest {
  readonly command: string
  readonly args: readonly string[]
}

type ControlAnswer = { readonly done: string } | { readonly failed: string }

/** Answers commands one after another. @param run - what a command did, in words */
export async function serveControl(path: string, run: (request: ControlRequest) => Promise<string>): Promise<Server> {
  let last: Promise<unknown> = Promise.resolve()
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy())
    createInterface({ input: socket }).once('line', (line) => {
      last = last.then(() => answer(socket, line, run))
    })
  })
  server.listen(path)
  await once(server, 'listening')
  return server
}

async function answer(socket: Socket, line: string, run: (request: ControlRequest) => Promise<string>): Promise<void> {
  let said: ControlAnswer
  try {
    said = { done: await run(JSON.parse(line) as ControlRequest) }
  } catch (error) {
    said = { failed: error instanceof Error ? error.message : String(error) }
  }
  socket.end(`${JSON.stringify(said)}\n`)
}

/** @returns what was done, in words @throws Error with the other end's words, or that nobody answers */
export async function askControl(path: string, request: ControlRequest): Promise<string> {
  const socket = connectSocket(path)
  try {
    await once(socket, 'connect')
  } catch (error) {
    throw new Error('The cluster of this file does not run any more: start one with `orbweaver-cluster up`', {
      cause: error,
    })
  }
  socket.write(`${JSON.stringify(request)}\n`)
  for await (const line of createInterface({ input: socket })) {
    const said = JSON.parse(line) as ControlAnswer
    if ('done' in said) return said.done
    throw new Error(said.failed)
  }
  throw new Error('The cluster ended before it answered')
}
