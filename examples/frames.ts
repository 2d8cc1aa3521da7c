// One request as bytes and back, without any connection: what @orbweaver/iproto is for.
import { BodyReader, callRequest, FrameHeader, FrameReader, FrameWriter, Key } from '@orbweaver/iproto'

const writer = new FrameWriter()
writer.request(callRequest('math.abs', [-42]), 7)
const bytes = Buffer.concat(writer.take())
console.log(`CALL as bytes: ${bytes.toString('hex')}`)

// The bytes may arrive in any pieces: here one by one.
const reader = new FrameReader({ maxFrameBytes: 1024 })
for (const byte of bytes) reader.push(Buffer.of(byte))

const frame = reader.next()
if (frame === undefined) throw new Error('the frame is not whole yet')
const header = new FrameHeader()
header.read(frame)
const body = new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd))
console.log(`sync ${header.sync}: call ${body.requireText(Key.functionName)} with`, body.requireArray(Key.tuple))

/* Prints:
 * CALL as bytes: …
 * sync 7: call math.abs with [ -42 ]
 */
