; The ALFWorld domain (https://github.com/alfworld/alfworld, MIT) as spo_fast supports it: the same names,
; conditions and effects. The engine in csrc/ implements exactly these actions, and a game whose domain
; parses to anything else is refused.

(define (domain alfred)
  (:requirements :adl :action-costs :typing)
  (:types agent location receptacle object rtype otype)

  (:predicates
    (atLocation ?a - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (objectAtLocation ?o - object ?l - location)
    (openable ?r - receptacle)
    (opened ?r - receptacle)
    (inReceptacle ?o - object ?r - receptacle)
    (isReceptacleObject ?o - object)
    (inReceptacleObject ?innerObject - object ?outerObject - object)
    (isReceptacleObjectFull ?o - object)
    (wasInReceptacle ?o - object ?r - receptacle)
    (checked ?r - receptacle)
    (examined ?l - location)
    (receptacleType ?r - receptacle ?t - rtype)
    (canContain ?rt - rtype ?ot - otype)
    (objectType ?o - object ?t - otype)
    (holds ?a - agent ?o - object)
    (holdsAny ?a - agent)
    (holdsAnyReceptacleObject ?a - agent)
    (full ?r - receptacle)
    (isClean ?o - object)
    (cleanable ?o - object)
    (isHot ?o - object)
    (heatable ?o - object)
    (isCool ?o - object)
    (coolable ?o - object)
    (pickupable ?o - object)
    (moveable ?o - object)
    (toggleable ?o - object)
    (isOn ?o - object)
    (isToggled ?o - object)
    (sliceable ?o - object)
    (isSliced ?o - object))

  (:functions
    (distance ?from ?to)
    (total-cost) - number)

  (:action look
    :parameters (?a - agent ?l - location)
    :precondition (atLocation ?a ?l)
    :effect (checked ?l))

  (:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))

  (:action examineReceptacle
    :parameters (?a - agent ?r - receptacle)
    :precondition (exists (?l - location)
                    (and (atLocation ?a ?l)
                         (receptacleAtLocation ?r ?l)))
    :effect (checked ?r))

  ; The comma is part of the domain: the public planner reads a type "location," that nothing has, so the
  ; exists never holds and only a held object can be examined. Without it the games would differ.
  (:action examineObject
    :parameters (?a - agent ?o - object)
    :precondition (or (exists (?l - location, ?r - receptacle)
                        (and (atLocation ?a ?l)
                             (receptacleAtLocation ?r ?l)
                             (inReceptacle ?o ?r)
                             (or (not (openable ?r)) (opened ?r))))
                      (holds ?a ?o))
    :effect (checked ?o))

  (:action GotoLocation
    :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
    :precondition (and (atLocation ?a ?lStart)
                       (receptacleAtLocation ?r ?lEnd))
    :effect (and (not (atLocation ?a ?lStart))
                 (atLocation ?a ?lEnd)
                 (increase (total-cost) 1)))

  (:action OpenObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (openable ?r)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (not (opened ?r)))
    :effect (and (opened ?r)
                 (checked ?r)
                 (increase (total-cost) 1)))

  (:action CloseObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (openable ?r)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (opened ?r))
    :effect (and (not (opened ?r))
                 (increase (total-cost) 1)))

  (:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (pickupable ?o)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (inReceptacle ?o ?r)
                       (not (holdsAny ?a))
                       (or (not (openable ?r)) (opened ?r)))
    :effect (and (not (inReceptacle ?o ?r))
                 (holds ?a ?o)
                 (holdsAny ?a)
                 (not (objectAtLocation ?o ?l))
                 (increase (total-cost) 1)))

  (:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    :precondition (and (holds ?a ?o)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (or (not (openable ?r)) (opened ?r))
                       (objectType ?o ?ot)
                       (receptacleType ?r ?rt)
                       (canContain ?rt ?ot))
    :effect (and (inReceptacle ?o ?r)
                 (objectAtLocation ?o ?l)
                 (not (holds ?a ?o))
                 (not (holdsAny ?a))
                 (increase (total-cost) 1)))

  (:action CleanObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (cleanable ?o)
                       (or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType))
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (holds ?a ?o))
    :effect (and (increase (total-cost) 5)
                 (isClean ?o)))

  (:action HeatObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (heatable ?o)
                       (receptacleType ?r MicrowaveType)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (holds ?a ?o))
    :effect (and (increase (total-cost) 5)
                 (isHot ?o)
                 (not (isCool ?o))))

  (:action CoolObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (coolable ?o)
                       (receptacleType ?r FridgeType)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (holds ?a ?o))
    :effect (and (increase (total-cost) 5)
                 (isCool ?o)
                 (not (isHot ?o))))

  (:action ToggleObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (toggleable ?o)
                       (atLocation ?a ?l)
                       (receptacleAtLocation ?r ?l)
                       (inReceptacle ?o ?r))
    :effect (and (increase (total-cost) 5)
                 (when (isOn ?o) (not (isOn ?o)))
                 (when (not (isOn ?o)) (isOn ?o))
                 (isToggled ?o)))

  (:action SliceObject
    :parameters (?a - agent ?l - location ?co - object ?ko - object)
    :precondition (and (sliceable ?co)
                       (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType))
                       (atLocation ?a ?l)
                       (objectAtLocation ?co ?l)
                       (holds ?a ?ko))
    :effect (and (increase (total-cost) 5)
                 (isSliced ?co)))

  (:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))
)
