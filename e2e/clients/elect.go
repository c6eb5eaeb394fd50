package main

import (
	"context"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// elect is one candidate for the Lease "leader". It tells whom it sees lead, and gives the lease up when its input ends.
func elect(ctx context.Context, clients *clients, namespace, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	onEndOfInput(cancel)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "leader"},
			Client:     clients.json.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		// Longer than a run may take: who takes over saw the release, and did not wait for the lease to expire.
		LeaseDuration: 2 * timeout,
		RenewDeadline: timeout,
		RetryPeriod:   200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { tell(map[string]any{"leads": true}) },
			OnStoppedLeading: func() { tell(map[string]any{"leads": false}) },
			OnNewLeader:      func(leader string) { tell(map[string]any{"sees": leader}) },
		},
		ReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

// onEndOfInput calls back when whoever started this program closes its input.
func onEndOfInput(then func()) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		then()
	}()
}
