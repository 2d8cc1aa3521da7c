import { describe, expect, it } from 'vitest'
import { Scene, type SceneOptions } from './scene.js'

/** a is the master, everybody speaks, one write per 100 ms. */
async function steady(options: SceneOptions = {}): Promise<Scene> {
  const scene = new Scene(options)
  const { a, ...others } = scene.instances
  a?.rw()
  for (const other of Object.values(others)) other.ro()
  await scene.clock.advance(50)
  scene.writeEvery(100)
  return scene
}

async function finish(scene: Scene, atMs: number): Promise<void> {
  await scene.until(atMs)
  scene.stopWriting()
  await scene.clock.advance(15_000)
  expect(scene.faults).toEqual([])
}

describe('timelines of a failover', () => {
  it('1: a planned switch without elections costs no error', async () => {
    const scene = await steady()
    const { a, b } = scene.instances
    await scene.play({ 1000: () => a!.ro(), 2000: () => b!.rw() })
    await finish(scene, 3000)
    expect(scene.failures).toEqual([])
    expect(scene.windows).toBe(1)
    expect(scene.replicaset.stats().windowEnds.other_instance).toBe(1)
    expect(scene.longestWaitMs).toBeGreaterThan(850)
    expect(scene.longestWaitMs).toBeLessThan(1050)
  })
})
