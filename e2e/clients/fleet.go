package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Of each round of the scenario fleet.
const (
	fleetRounds   = 5
	fleetWorkers  = 10
	fleetOnLost   = 250
	fleetHealthy  = 10
	lostNamespace = "lost"
)

// fleet runs a controller with ten workers over the objects of a lost and of a healthy cluster, most of them on the lost one,
// and tells of each round how long it took until all of the healthy one were reconciled, and how long a worker was held at most.
func fleet(ctx context.Context, healthy, lost *rest.Config, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A line for each failure would be most of the work.
	ctrl.SetLogger(logr.Discard())
	reconciler := &fleetReconciler{clusters: map[string]kubernetes.Interface{}, namespace: namespace, done: make(chan string, fleetHealthy)}
	for name, config := range map[string]*rest.Config{lostNamespace: lost, namespace: healthy} {
		config.ContentType = runtime.ContentTypeJSON
		config.QPS = -1
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		reconciler.clusters[name] = clientset
	}
	manager, err := ctrl.NewManager(healthy, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	events := make(chan event.GenericEvent)
	err = ctrl.NewControllerManagedBy(manager).Named("fleet").
		WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: fleetWorkers}).
		Complete(reconciler)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	for round := range fleetRounds {
		reconciler.begin()
		add := func(cluster, name string) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
			events <- event.GenericEvent{Object: object}
		}
		for n := range fleetOnLost {
			// Other objects in each round, so that none waits for its next attempt.
			add(lostNamespace, fmt.Sprintf("o%d-%d", round, n))
		}
		started := time.Now()
		for n := range fleetHealthy {
			add(namespace, "o"+strconv.Itoa(n))
		}
		for range fleetHealthy {
			select {
			case <-reconciler.done:
			case err := <-ended:
				return fmt.Errorf("the manager ended: %w", err)
			}
		}
		took := time.Since(started)
		held, failed := reconciler.lost()
		tell(map[string]any{"round": round, "took": took.Milliseconds(), "held": held.Milliseconds(), "failed": failed})
	}
	// The manager is not waited for: its workers have a thousand failures to try again.
	return nil
}

type fleetReconciler struct {
	clusters  map[string]kubernetes.Interface
	namespace string
	done      chan string
	mutex     sync.Mutex
	held      time.Duration
	failed    int
}

func (f *fleetReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	started := time.Now()
	_, err := f.clusters[request.Namespace].CoreV1().ConfigMaps("default").Get(ctx, request.Name, metav1.GetOptions{})
	if request.Namespace == f.namespace {
		if err == nil {
			f.done <- request.Name
		}
		return ctrl.Result{}, err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.held = max(f.held, time.Since(started))
	if err == nil {
		fault("%s was read from a cluster that is lost", request.Name)
	}
	f.failed++
	return ctrl.Result{}, err
}

func (f *fleetReconciler) begin() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.held, f.failed = 0, 0
}

func (f *fleetReconciler) lost() (time.Duration, int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.held, f.failed
}
