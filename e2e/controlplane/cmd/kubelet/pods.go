package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// exitCodeAnnotation makes the containers of a pod end with this code as soon as they run.
const exitCodeAnnotation = "kubelet.fleetcache.dev/exit-code"

// pods binds pods to the node, makes them run, and finishes their deletion: scheduler and kubelet in one.
type pods struct {
	client   kubernetes.Interface
	lister   corelisters.PodLister
	queue    workqueue.TypedRateLimitingInterface[string]
	nodeName string
	lastIP   atomic.Uint32
}

func newPods(client kubernetes.Interface, factory informers.SharedInformerFactory, nodeName string) *pods {
	informer := factory.Core().V1().Pods()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryInterval/10, retryInterval*5)
	p := &pods{client: client, lister: informer.Lister(), queue: workqueue.NewTypedRateLimitingQueue(limiter), nodeName: nodeName}
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			p.queue.Add(key)
		}
	}
	informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	})
	return p
}

func (p *pods) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		p.queue.ShutDown()
	}()
	for {
		key, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.sync(ctx, key); err != nil {
			klog.ErrorS(err, "cannot sync", "pod", key)
			p.queue.AddRateLimited(key)
		} else {
			p.queue.Forget(key)
		}
		p.queue.Done(key)
	}
}

// sync takes one step towards what the pod should be; the next event takes the next one.
func (p *pods) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	pod, err := p.lister.Pods(namespace).Get(name)
	if err != nil {
		return ignoreRaces(err)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return p.finishDeletion(ctx, pod)
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 && pod.Spec.SchedulerName == corev1.DefaultSchedulerName:
		return p.bind(ctx, pod)
	case pod.Spec.NodeName != p.nodeName:
		return nil
	case pod.Status.Phase == corev1.PodPending:
		return p.patchStatus(ctx, pod, p.running(pod))
	case pod.Status.Phase == corev1.PodRunning && pod.Annotations[exitCodeAnnotation] != "":
		return p.patchStatus(ctx, pod, terminated(pod))
	}
	return nil
}

func (p *pods) bind(ctx context.Context, pod *corev1.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: p.nodeName},
	}
	return ignoreRaces(p.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}))
}

// finishDeletion is what a kubelet does when the containers have stopped. A grace period of zero means that it was done,
// and that a finalizer holds the object.
func (p *pods) finishDeletion(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName != p.nodeName || (pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0) {
		return nil
	}
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return ignoreRaces(p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options))
}

func (p *pods) patchStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreRaces(err)
}

func (p *pods) running(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	n := p.lastIP.Add(1)
	ip := fmt.Sprintf("10.244.%d.%d", n/250%250, n%250+1)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "127.0.0.1", HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &now,
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		started := true
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "none", ContainerID: "none://" + container.Name, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

func terminated(pod *corev1.Pod) corev1.PodStatus {
	code, _ := strconv.Atoi(pod.Annotations[exitCodeAnnotation])
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	now := metav1.Now()
	status := corev1.PodStatus{Phase: phase}
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: now,
		})
	}
	for _, container := range pod.Status.ContainerStatuses {
		started := false
		state := corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason, FinishedAt: now}
		if container.State.Running != nil {
			state.StartedAt = container.State.Running.StartedAt
		}
		container.Ready, container.Started, container.State = false, &started, corev1.ContainerState{Terminated: &state}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	return status
}

// ignoreRaces drops the errors that only say that the pod in the informer is no longer the pod in the server.
func ignoreRaces(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
