import { expect, test } from 'vitest'
import { busyRound, promiseRound } from '../src/round.js'

test('promiseRound keeps so many requests in flight and counts the answers', async () => {
  let inFlight = 0
  let most = 0
  const round = await promiseRound(
    async () => {
      inFlight += 1
      most = Math.max(most, inFlight)
      await new Promise((resolve) => {
        setImmediate(resolve)
      })
      inFlight -= 1
    },
    { inFlight: 7, seconds: 0.01, patienceMs: 1_000 },
  )
  expect(most).toBe(7)
  expect(inFlight).toBe(0)
  expect(round).toMatchObject({ lost: 0 })
  expect(round.requests).toBeGreaterThanOrEqual(7)
  expect(round.p50Us).toBeGreaterThan(0)
})

test('promiseRound does not wait for ever for requests that get lost', async () => {
  const lost = new Promise<never>(() => {})
  const round = await promiseRound((index) => (index < 3 ? lost : new Promise((resolve) => setImmediate(resolve))), {
    inFlight: 5,
    seconds: 0.005,
    patienceMs: 5,
  })
  expect(round.lost).toBe(3)
})

test('promiseRound ends with the error of a request', async () => {
  await expect(
    promiseRound(() => Promise.reject(new Error('no such space')), { inFlight: 2, seconds: 5, patienceMs: 5 }),
  ).rejects.toThrow('no such space')
})

test('busyRound counts whole batches', () => {
  let done = 0
  const round = busyRound(() => (done += 1), 0.002, 10)
  expect(round.requests).toBe(done)
  expect(done % 10).toBe(0)
})
